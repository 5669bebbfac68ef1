/* library.h - what this library stands in for, and what it answers where there is nothing behind it. */
#include "nvml.h"

#define LIBRARY "libnvidia-ml.so.1"
#define STATUS_NO_DRIVER NVML_ERROR_LIBRARY_NOT_FOUND
#define STATUS_NO_FUNCTION NVML_ERROR_FUNCTION_NOT_FOUND
