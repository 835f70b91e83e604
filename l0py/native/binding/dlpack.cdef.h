/* DLPack 1.x: capsules made and consumed. Read by the C compiler and by cffi.

   Python objects are given by their id. Whatever ends a tensor may run on any thread, with or without the GIL. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { L0_DLPACK_READ_ONLY = 1, L0_DLPACK_COPIED = 2 };

/* What a capsule says, and the right to end it. */
typedef struct l0_dlpack {
  uintptr_t managed; /* 0 once it is ended */
  uint64_t flags;    /* 0 for an unversioned one, which has none */
  uintptr_t data;
  uint64_t byte_offset;
  const int64_t* shape;
  const int64_t* strides; /* in elements; NULL means C-contiguous */
  int32_t versioned;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} l0_dlpack;

enum { L0_DLPACK_TAKEN, L0_DLPACK_NONE, L0_DLPACK_TOO_NEW };

/* Appends a capsule of a C-contiguous tensor in host memory to a list; false when there is no memory. `owner` lives as
   long as the tensor. With `copied` bytes the tensor is a copy of them instead, and nobody owns it. */
int l0_dlpack_export(uintptr_t list, uintptr_t owner, uintptr_t data, uint8_t code, uint8_t bits, int32_t ndim,
                     const int64_t* shape, int versioned, uint64_t flags, size_t copied);
/* Tensors given out for an owner (for anybody and copies too, with 0) that are not ended; those in capsules too. */
int64_t l0_dlpack_count(uintptr_t owner);

/* Consumes a capsule: it is renamed, and `out` must be ended by l0_dlpack_end. NONE: it is no DLPack capsule, or a
   consumed one. TOO_NEW: of another major version; it stays as it was. */
int l0_dlpack_take(uintptr_t capsule, l0_dlpack* out);
/* Calls the producer's deleter, once. */
void l0_dlpack_end(l0_dlpack* taken);
