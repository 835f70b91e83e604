/* Who owns a native handle, who still uses it, and when it is destroyed. Read by the C compiler and by cffi. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What releases a handle; BORROWED ones are never released. */
enum {
  L0_BORROWED,
  L0_CONTEXT,
  L0_MEMORY,
  L0_COMMAND_QUEUE,
  L0_COMMAND_LIST,
  L0_FENCE,
  L0_IMAGE,
  L0_PHYSICAL_MEMORY,
  L0_RESERVATION, /* of virtual memory */
  L0_MAPPING,     /* of physical memory into a reservation */
  L0_IPC_HANDLE,  /* its handle is the address of the ze_ipc_mem_handle_t, which the box keeps */
  L0_IPC_MEMORY,  /* memory opened by an IPC handle */
  L0_KINDS
};

enum { L0_OPEN, L0_CLOSED, L0_PARENT_CLOSED, L0_OTHER_PROCESS };

/* One native handle. It holds its parent's box, so that the parent is destroyed after it whatever the order in which
   Python lets go of the two. */
typedef struct l0_box {
  uintptr_t handle; /* set by the creator after the native call succeeded; 0 is never destroyed */
  int32_t result;   /* what the native call that should have made it answered */
  size_t size;      /* bytes of a reservation or mapping, which their destroying functions ask for */
} l0_box;

/* NULL when there is no memory. With a closed parent the box is born closed (see l0_box_state). */
l0_box* l0_box_new(int kind, l0_box* parent);
/* Keeps a Python object (its id) alive until the native handle is gone. At most one. */
void l0_box_keep(l0_box* box, uintptr_t object);
/* Keeps another native handle from being destroyed before this one, as the parent is kept. At most one. False when the
   other may not be used. */
int l0_box_lean_on(l0_box* box, l0_box* other);
/* L0_OPEN, or why it may not be used. */
int l0_box_state(l0_box* box);
/* The handle, 0 when it may not be used. */
uintptr_t l0_box_handle(l0_box* box);
/* While it is held, the native handle outlives a close(). False when it may not be used. */
int l0_box_hold(l0_box* box);
void l0_box_release(l0_box* box);
/* Ends its use; the native handle is destroyed as soon as no child and nobody holding it is left. Runs once: later
   calls answer 0. The answer is the destroying function's, when it ran at once. */
int32_t l0_box_close(l0_box* box);
/* Closes and forgets: what the garbage collector calls. */
void l0_box_drop(l0_box* box);
/* Native handles that are open or not yet destroyed, of one kind (for leak tests and diagnostics). */
int64_t l0_box_count(int kind);
