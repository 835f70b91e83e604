#include <Python.h>

#include "handles.cdef.h"

#include <stdatomic.h>
#include <stdlib.h>

#ifndef _WIN32
#include <pthread.h>
#endif

#include "binding_api.h"

/* `uses` keeps the native handle: the owner's one until close(), one of each child, one of each hold.
   `holders` keeps this structure: Python's one, and one while the native handle lives. */
typedef struct box {
  l0_box shown;
  struct box* parent;
  struct box* support;
  PyObject* kept;
  atomic_int uses;
  atomic_int holders;
  atomic_int closed;
  int kind;
  unsigned process;
} box;

/* Counts forks: a child must not release what its parent made. */
static unsigned this_process = 0;
static atomic_llong alive[L0_KINDS];

#ifndef _WIN32 /* where nothing forks */
static void after_fork_in_child(void) { ++this_process; }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }
#endif

static box* of(l0_box* shown) { return (box*)shown; }

static int take_use(box* b) {
  int uses = atomic_load(&b->uses);
  while (uses > 0) {
    if (atomic_compare_exchange_weak(&b->uses, &uses, uses + 1)) {
      return 1;
    }
  }
  return 0;
}

static void forget(box* b) {
  if (atomic_fetch_sub(&b->holders, 1) == 1) {
    free(b);
  }
}

static uintptr_t context_of(const box* b) {
  while (b->parent != NULL) {
    b = b->parent;
  }
  return b->shown.handle;
}

/* Where nobody can be told, there is nothing to tell: a loader between drivers answers UNINITIALIZED then. */
static ze_result_t put_ipc_handle(const box* b) {
  ze_result_t result = zeMemPutIpcHandle(context_of(b), *(const ze_ipc_mem_handle_t*)b->shown.handle);
  int missing = result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE || result == ZE_RESULT_ERROR_UNINITIALIZED;
  return missing ? ZE_RESULT_SUCCESS : result;
}

static ze_result_t destroy(const box* b) {
  uintptr_t handle = b->shown.handle;
  if (handle == 0 || b->kind == L0_BORROWED || zelCheckIsLoaderInTearDown()) {
    return ZE_RESULT_SUCCESS;
  }
  switch (b->kind) {
    case L0_CONTEXT: return zeContextDestroy(handle);
    case L0_MEMORY: return zeMemFree(context_of(b), handle);
    case L0_COMMAND_QUEUE: return zeCommandQueueDestroy(handle);
    case L0_COMMAND_LIST: return zeCommandListDestroy(handle);
    case L0_FENCE: return zeFenceDestroy(handle);
    case L0_IMAGE: return zeImageDestroy(handle);
    case L0_PHYSICAL_MEMORY: return zePhysicalMemDestroy(context_of(b), handle);
    case L0_RESERVATION: return zeVirtualMemFree(context_of(b), handle, b->shown.size);
    case L0_MAPPING: return zeVirtualMemUnmap(context_of(b), handle, b->shown.size);
    case L0_IPC_HANDLE: return put_ipc_handle(b);
    case L0_IPC_MEMORY: return zeMemCloseIpcHandle(context_of(b), handle);
    default: return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  }
}

static void let_go(PyObject* object) {
  if (object != NULL && Py_IsInitialized()) {
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DecRef(object);
    PyGILState_Release(state);
  }
}

/* Ends one use; the last one destroys, and then ends the uses of the support and the parent. */
static ze_result_t end_use(box* b) {
  ze_result_t result = ZE_RESULT_SUCCESS;
  int first = 1;
  while (b != NULL && atomic_fetch_sub(&b->uses, 1) == 1) {
    box* parent = b->parent;
    if (b->process == this_process) {
      ze_result_t answer = destroy(b);
      result = first ? answer : result;
      let_go(b->kept);
    }
    atomic_fetch_sub(&alive[b->kind], 1);
    if (b->support != NULL) {
      end_use(b->support);
    }
    forget(b);
    first = 0;
    b = parent;
  }
  return result;
}

l0_box* l0_box_new(int kind, l0_box* parent) {
  box* b = calloc(1, sizeof(box));
  if (b == NULL) {
    return NULL;
  }
  b->kind = kind;
  b->process = this_process;
  atomic_init(&b->uses, 1);
  atomic_init(&b->holders, 2);
  atomic_fetch_add(&alive[kind], 1);
  if (parent != NULL) {
    if (l0_box_hold(parent)) {
      b->parent = of(parent);
    } else {
      b->shown.result = ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
      l0_box_close(&b->shown);
    }
  }
  return &b->shown;
}

void l0_box_keep(l0_box* shown, uintptr_t object) {
  PyGILState_STATE state = PyGILState_Ensure();
  of(shown)->kept = (PyObject*)object;
  Py_IncRef(of(shown)->kept);
  PyGILState_Release(state);
}

int l0_box_lean_on(l0_box* shown, l0_box* other) {
  if (!l0_box_hold(other)) {
    return 0;
  }
  of(shown)->support = of(other);
  return 1;
}

int l0_box_state(l0_box* shown) {
  const box* b = of(shown);
  if (b->process != this_process) {
    return L0_OTHER_PROCESS;
  }
  if (atomic_load(&of(shown)->closed)) {
    return L0_CLOSED;
  }
  for (box* parent = b->parent; parent != NULL; parent = parent->parent) {
    if (atomic_load(&parent->closed)) {
      return L0_PARENT_CLOSED;
    }
  }
  return L0_OPEN;
}

uintptr_t l0_box_handle(l0_box* shown) { return l0_box_state(shown) == L0_OPEN ? shown->handle : 0; }

int l0_box_hold(l0_box* shown) {
  if (!take_use(of(shown))) {
    return 0;
  }
  if (l0_box_state(shown) != L0_OPEN) {
    end_use(of(shown));
    return 0;
  }
  return 1;
}

void l0_box_release(l0_box* shown) { end_use(of(shown)); }

int32_t l0_box_close(l0_box* shown) {
  return atomic_exchange(&of(shown)->closed, 1) ? ZE_RESULT_SUCCESS : (int32_t)end_use(of(shown));
}

void l0_box_drop(l0_box* shown) {
  l0_box_close(shown);
  forget(of(shown));
}

int64_t l0_box_count(int kind) { return atomic_load(&alive[kind]); }
