/* Who owns a native handle, who still uses it, and when it is destroyed. Read by the C compiler and by cffi. */
#pragma once

#include <stdint.h>

/* What releases a handle; BORROWED ones are never released. */
enum { L0_BORROWED, L0_CONTEXT, L0_MEMORY, L0_COMMAND_QUEUE, L0_COMMAND_LIST, L0_FENCE };

enum { L0_OPEN, L0_CLOSED, L0_PARENT_CLOSED, L0_OTHER_PROCESS };

/* One native handle. It holds its parent's box, so that the parent is destroyed after it whatever the order in which
   Python lets go of the two. */
typedef struct l0_box {
  uintptr_t handle; /* set by the creator after the native call succeeded; 0 is never destroyed */
  int32_t result;   /* what the native call that should have made it answered */
} l0_box;

/* NULL when there is no memory. With a closed parent the box is born closed (see l0_box_state). */
l0_box* l0_box_new(int kind, l0_box* parent);
/* Keeps a Python object (its id) alive until the native handle is gone. At most one. */
void l0_box_keep(l0_box* box, uintptr_t object);
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
