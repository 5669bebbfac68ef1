/* library.h - what this library stands in for, and what it answers where there is nothing behind it. */
#include "cuda.h"

#define LIBRARY "libcuda.so.1"
#define STATUS_NO_DRIVER CUDA_ERROR_NO_DEVICE
#define STATUS_NO_FUNCTION CUDA_ERROR_NOT_SUPPORTED
