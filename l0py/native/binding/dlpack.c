#include <Python.h>

#include "dlpack.cdef.h"

#include <stdlib.h>
#include <string.h>

/* DLPack's structures, as its header lays them out. */
typedef struct {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} tensor;

typedef struct unversioned {
  tensor shown;
  void* context;
  void (*deleter)(struct unversioned*);
} unversioned;

typedef struct versioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(struct versioned*);
  uint64_t flags;
  tensor shown;
} versioned;

#define CPU 1
#define ALIGNMENT 256 /* what DLPack asks of data */

/* Consumers and producers compare names by text, but capsules keep the pointer. */
static const char unversioned_name[] = "dltensor";
static const char unversioned_used[] = "used_dltensor";
static const char versioned_name[] = "dltensor_versioned";
static const char versioned_used[] = "used_dltensor_versioned";

/* A tensor that was given out. All of them are in a ring, which the GIL guards. */
typedef struct export {
  versioned new;
  unversioned old;
  PyObject* owner;
  struct export* next;
  struct export* previous;
  int64_t extents[]; /* shape, then strides; then the bytes of a copy */
} export;

static export ring = {.next = &ring, .previous = &ring};

static void end(export* e) {
  if (!Py_IsInitialized()) {
    return; /* Python is gone, and with it whoever could free the owner */
  }
  PyGILState_STATE state = PyGILState_Ensure();
  e->previous->next = e->next;
  e->next->previous = e->previous;
  Py_XDECREF(e->owner);
  free(e);
  PyGILState_Release(state);
}

static void end_versioned(versioned* self) { end(self->context); }

static void end_unversioned(unversioned* self) { end(self->context); }

/* Whoever consumes a capsule renames it: what still has its first name was not consumed. */
static void end_capsule(PyObject* capsule) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (PyCapsule_IsValid(capsule, versioned_name)) {
    versioned* managed = PyCapsule_GetPointer(capsule, versioned_name);
    managed->deleter(managed);
  } else if (PyCapsule_IsValid(capsule, unversioned_name)) {
    unversioned* managed = PyCapsule_GetPointer(capsule, unversioned_name);
    managed->deleter(managed);
  }
  PyErr_Restore(type, value, traceback);
}

static export* new_export(uint32_t ndim, size_t copied) {
  if (copied > SIZE_MAX / 2) {
    return NULL;
  }
  size_t extents = 2 * (size_t)ndim * sizeof(int64_t);
  return malloc(sizeof(export) + extents + (copied ? copied + ALIGNMENT : 0));
}

static void* copy_behind(export* e, int32_t ndim, uintptr_t data, size_t size) {
  uintptr_t place = ((uintptr_t)(e->extents + 2 * ndim) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return memcpy((void*)place, (const void*)data, size);
}

int l0_dlpack_export(uintptr_t list, uintptr_t owner, uintptr_t data, uint8_t code, uint8_t bits, int32_t ndim,
                     const int64_t* shape, int as_versioned, uint64_t flags, size_t copied) {
  export* e = new_export((uint32_t)ndim, copied);
  if (e == NULL) {
    return 0;
  }
  int64_t* strides = e->extents + ndim;
  int64_t stride = 1;
  for (int32_t i = ndim; i-- > 0;) {
    e->extents[i] = shape[i];
    strides[i] = stride;
    stride *= shape[i];
  }
  void* shown_data = copied ? copy_behind(e, ndim, data, copied) : (void*)data;
  tensor shown = {shown_data, CPU, 0, ndim, code, bits, 1, e->extents, strides, 0};
  e->new = (versioned){1, 3, e, end_versioned, flags, shown};
  e->old = (unversioned){shown, e, end_unversioned};
  e->owner = copied ? NULL : (PyObject*)owner;

  PyGILState_STATE state = PyGILState_Ensure();
  if (e->owner != NULL) {
    Py_INCREF(e->owner);
  }
  e->next = &ring;
  e->previous = ring.previous;
  ring.previous->next = e;
  ring.previous = e;
  PyObject* capsule = as_versioned ? PyCapsule_New(&e->new, versioned_name, end_capsule)
                                   : PyCapsule_New(&e->old, unversioned_name, end_capsule);
  int done = capsule != NULL && PyList_Append((PyObject*)list, capsule) == 0;
  if (capsule == NULL) {
    end(e);
  }
  Py_XDECREF(capsule); /* the list has it; if it has not, this ends the tensor */
  if (!done) {
    PyErr_Clear();
  }
  PyGILState_Release(state);
  return done;
}

int64_t l0_dlpack_count(uintptr_t owner) {
  int64_t count = 0;
  PyGILState_STATE state = PyGILState_Ensure();
  for (const export* e = ring.next; e != &ring; e = e->next) {
    count += owner == 0 || e->owner == (PyObject*)owner;
  }
  PyGILState_Release(state);
  return count;
}

static void show(l0_dlpack* out, const tensor* shown) {
  out->data = (uintptr_t)shown->data;
  out->byte_offset = shown->byte_offset;
  out->shape = shown->shape;
  out->strides = shown->strides;
  out->device_type = shown->device_type;
  out->device_id = shown->device_id;
  out->ndim = shown->ndim;
  out->code = shown->code;
  out->bits = shown->bits;
  out->lanes = shown->lanes;
}

static int take(PyObject* capsule, l0_dlpack* out) {
  if (PyCapsule_IsValid(capsule, versioned_name)) {
    const versioned* managed = PyCapsule_GetPointer(capsule, versioned_name);
    if (managed->major != 1) {
      return L0_DLPACK_TOO_NEW;
    }
    out->versioned = 1;
    out->flags = managed->flags;
    out->managed = (uintptr_t)managed;
    show(out, &managed->shown);
    PyCapsule_SetName(capsule, versioned_used);
    return L0_DLPACK_TAKEN;
  }
  if (PyCapsule_IsValid(capsule, unversioned_name)) {
    const unversioned* managed = PyCapsule_GetPointer(capsule, unversioned_name);
    out->versioned = 0;
    out->flags = 0;
    out->managed = (uintptr_t)managed;
    show(out, &managed->shown);
    PyCapsule_SetName(capsule, unversioned_used);
    return L0_DLPACK_TAKEN;
  }
  return L0_DLPACK_NONE;
}

int l0_dlpack_take(uintptr_t capsule, l0_dlpack* out) {
  PyGILState_STATE state = PyGILState_Ensure();
  int answer = take((PyObject*)capsule, out);
  PyGILState_Release(state);
  return answer;
}

void l0_dlpack_end(l0_dlpack* taken) {
  uintptr_t managed = taken->managed;
  taken->managed = 0;
  if (managed == 0 || !Py_IsInitialized()) {
    return;
  }
  /* Deleters should do without the GIL, but those of Python's own libraries were only ever called with it. */
  PyGILState_STATE state = PyGILState_Ensure();
  if (taken->versioned) {
    versioned* one = (versioned*)managed;
    if (one->deleter != NULL) {
      one->deleter(one);
    }
  } else {
    unversioned* one = (unversioned*)managed;
    if (one->deleter != NULL) {
      one->deleter(one);
    }
  }
  PyGILState_Release(state);
}
