#include <Python.h>

#include "capsules.cdef.h"

#include <stdlib.h>

/* Borrowed handles: consumers leave the names as they are, and keep the capsule. */
static const char context_name[] = "l0py.ze_context_handle";
static const char memory_name[] = "l0py.ze_memory";

static void end_context(PyObject* capsule) { Py_XDECREF((PyObject*)PyCapsule_GetContext(capsule)); }

static void end_memory(PyObject* capsule) {
  free(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))); /* whatever it is called by now */
  Py_XDECREF((PyObject*)PyCapsule_GetContext(capsule));
}

/* Hands the new capsule over to the list, and the owner to the capsule. With the GIL. */
static int hand_over(PyObject* list, PyObject* capsule, PyObject* owner) {
  if (capsule == NULL) {
    PyErr_Clear();
    return 0;
  }
  Py_INCREF(owner);
  int done = PyCapsule_SetContext(capsule, owner) == 0 && PyList_Append(list, capsule) == 0;
  if (!done) {
    PyErr_Clear();
  }
  Py_DECREF(capsule);
  return done;
}

int l0_capsule_of_context(uintptr_t list, uintptr_t owner, uintptr_t context) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* capsule = PyCapsule_New((void*)context, context_name, end_context);
  int done = hand_over((PyObject*)list, capsule, (PyObject*)owner);
  PyGILState_Release(state);
  return done;
}

int l0_capsule_of_memory(uintptr_t list, uintptr_t owner, const l0_ze_memory* memory) {
  l0_ze_memory* copy = malloc(sizeof(*copy));
  if (copy == NULL) {
    return 0;
  }
  *copy = *memory;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject* capsule = PyCapsule_New(copy, memory_name, end_memory);
  if (capsule == NULL) {
    free(copy);
  }
  int done = hand_over((PyObject*)list, capsule, (PyObject*)owner);
  PyGILState_Release(state);
  return done;
}

const char* l0_capsule_name(uintptr_t object) {
  PyGILState_STATE state = PyGILState_Ensure();
  const char* name = PyCapsule_GetName((PyObject*)object);
  PyErr_Clear(); /* that it is no capsule */
  PyGILState_Release(state);
  return name;
}

const void* l0_capsule_pointer(uintptr_t object, const char* name) {
  PyGILState_STATE state = PyGILState_Ensure();
  const void* pointer =
      PyCapsule_IsValid((PyObject*)object, name) ? PyCapsule_GetPointer((PyObject*)object, name) : NULL;
  PyGILState_Release(state);
  return pointer;
}
