/* The part of CPython's stable ABI that this module uses, for machines whose Python came without its headers.

   A bare Debian has Python but no Python.h, and installing it needs root. The stable ABI never changes, so that these
   declarations hold for every CPython from 3.10 on; free-threaded builds, which have no stable ABI, need the real ones.
 */
#pragma once

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(Py_LIMITED_API)
#error "Only the stable ABI is declared here"
#endif

typedef struct _object PyObject;
typedef struct _ts PyThreadState;
typedef intptr_t Py_ssize_t;
typedef enum { PyGILState_LOCKED, PyGILState_UNLOCKED } PyGILState_STATE;

#if defined(_WIN32)
#define PyMODINIT_FUNC __declspec(dllexport) PyObject*
#define PyAPI_DATA __declspec(dllimport) extern
#else
#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject*
#define PyAPI_DATA extern
#endif

PyAPI_DATA PyObject _Py_NoneStruct;
#define Py_None (&_Py_NoneStruct)

void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
#define Py_INCREF(object) Py_IncRef((PyObject*)(object))
#define Py_DECREF(object) Py_DecRef((PyObject*)(object))
#define Py_XDECREF(object) Py_DecRef((PyObject*)(object))

int Py_IsInitialized(void);
void Py_FatalError(const char*);
PyThreadState* PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState*);
#define Py_BEGIN_ALLOW_THREADS \
  {                            \
    PyThreadState* _save = PyEval_SaveThread();
#define Py_END_ALLOW_THREADS   \
  PyEval_RestoreThread(_save); \
  }
PyGILState_STATE PyGILState_Ensure(void);
void PyGILState_Release(PyGILState_STATE);

void* PyObject_Malloc(size_t);
void PyObject_Free(void*);

PyObject* PyErr_Occurred(void);
void PyErr_Clear(void);
void PyErr_Fetch(PyObject**, PyObject**, PyObject**);
void PyErr_Restore(PyObject*, PyObject*, PyObject*);
int PyArg_UnpackTuple(PyObject*, const char*, Py_ssize_t, Py_ssize_t, ...);
PyObject* PyObject_CallMethod(PyObject*, const char*, const char*, ...);
PyObject* PyImport_ImportModule(const char*);

int PyList_Append(PyObject*, PyObject*);

typedef void (*PyCapsule_Destructor)(PyObject*);
PyObject* PyCapsule_New(void*, const char*, PyCapsule_Destructor);
int PyCapsule_IsValid(PyObject*, const char*);
void* PyCapsule_GetPointer(PyObject*, const char*);
const char* PyCapsule_GetName(PyObject*);
int PyCapsule_SetName(PyObject*, const char*);
void* PyCapsule_GetContext(PyObject*);
int PyCapsule_SetContext(PyObject*, void*);

PyObject* PyBool_FromLong(long);
PyObject* PyFloat_FromDouble(double);
double PyFloat_AsDouble(PyObject*);
PyObject* PyLong_FromLong(long);
PyObject* PyLong_FromUnsignedLong(unsigned long);
PyObject* PyLong_FromLongLong(long long);
PyObject* PyLong_FromUnsignedLongLong(unsigned long long);
PyObject* PyLong_FromVoidPtr(void*);
