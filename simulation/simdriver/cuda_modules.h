/* cuda_modules.h - modules and libraries, and the functions in them. */
#ifndef EDGEGPU_SIM_CUDA_MODULES_H
#define EDGEGPU_SIM_CUDA_MODULES_H

#include "cuda_objects.h"

#define FUNCTION_NAME 128

struct cu_function_object {
	struct cu_object object;
	struct cu_module *module;
	char name[FUNCTION_NAME];
	uint64_t ns;
	bool by_argument;		/* the first argument is the time in ns */
	int local;			/* bytes of local memory that each thread needs */
	struct cu_function_object *next;
};

struct cu_module {
	struct cu_object object;
	struct cu_function_object *functions;
	CUdeviceptr global;		/* one stands for all; 0 before it is asked for */
	void *library;			/* NULL: it is none's */
	uint64_t code;			/* the key of what its first function has loaded; 0: none */
};

/* cuda_modules.c */
CUresult cu_module_make(const char *call, struct cu_module **out);
CUresult cu_module_function(struct cu_module *module, const char *name, struct cu_function_object **out);
CUresult cu_module_global(struct cu_module *module, CUdeviceptr *out, size_t *bytes);

#endif
