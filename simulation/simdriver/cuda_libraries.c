/* cuda_libraries.c - libraries: modules of no context, loaded into one when a kernel is asked for.
 *
 * Who enumerates a library's kernels gets one, whose code is loaded when its function is asked for. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_modules.h"

#define ENUMERATED "kernel"

struct library;

struct kernel {
	struct cu_object object;
	struct library *library;
};

struct library {
	struct cu_object object;
	struct cu_module *module;	/* NULL before the first kernel */
	struct kernel *kernel;		/* NULL before it was enumerated */
};

static void drop_library(struct cu_object *object)
{
	struct cu_object *module = cu_find(CU_MODULE, cu_key(((struct library *)object)->module));

	if (module != NULL)
		cu_drop(module);
	if (((struct library *)object)->kernel != NULL)
		cu_drop(&((struct library *)object)->kernel->object);
	free(object);
}

SIM_API CUresult cuLibraryLoadData(struct library **out, const void *code, int *jit, void **jit_values,
				   unsigned int jit_count, int *options, void **values,
				   unsigned int count)
{
	CUresult ret = cu_enter(__func__);
	struct library *library;

	(void)jit;
	(void)jit_values;
	(void)jit_count;
	(void)options;
	(void)values;
	(void)count;
	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || code == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	library = calloc(1, sizeof(*library));
	if (library == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	library->object.kind = CU_LIBRARY;
	library->object.drop = drop_library;
	ret = cu_keep(&library->object);
	if (ret == CUDA_SUCCESS)
		*out = library;
	return ret;
}

SIM_API CUresult cuLibraryUnload(struct library *handle)
{
	return cu_end(__func__, CU_LIBRARY, cu_key(handle), CUDA_ERROR_INVALID_HANDLE);
}

/* Loads the library's module into the current context, or into a new one where the first has ended. */
static CUresult module_of(const char *call, const struct library *handle, struct cu_module **out)
{
	CUresult ret = cu_enter(call);
	struct library *library;
	struct cu_object *loaded = NULL;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	library = (struct library *)cu_find(CU_LIBRARY, cu_key(handle));
	if (library != NULL && library->module != NULL)
		loaded = cu_find(CU_MODULE, cu_key(library->module));
	cu_unlock();
	if (library == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	if (loaded == NULL)
		ret = cu_module_make(call, &library->module);
	if (loaded == NULL && ret == CUDA_SUCCESS)
		library->module->library = library;
	*out = library->module;
	return ret;
}

SIM_API CUresult cuLibraryGetModule(struct cu_module **out, struct library *handle)
{
	return out == NULL ? CUDA_ERROR_INVALID_VALUE : module_of(__func__, handle, out);
}

SIM_API CUresult cuLibraryGetKernel(struct cu_function_object **out, struct library *handle,
				    const char *name)
{
	struct cu_module *module;
	CUresult ret;

	if (out == NULL || name == NULL || *name == '\0')
		return CUDA_ERROR_INVALID_VALUE;
	ret = module_of(__func__, handle, &module);
	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	ret = cu_module_function(module, name, out);
	cu_unlock();
	return ret;
}

SIM_API CUresult cuLibraryGetGlobal(CUdeviceptr *out, size_t *bytes, struct library *handle,
				    const char *name)
{
	struct cu_module *module;
	CUresult ret;

	if (name == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	ret = module_of(__func__, handle, &module);
	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	ret = cu_module_global(module, out, bytes);
	cu_unlock();
	return ret;
}

SIM_API CUresult cuLibraryGetKernelCount(unsigned int *out, struct library *handle)
{
	(void)handle;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = 1;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuLibraryEnumerateKernels(struct kernel **out, unsigned int count, struct library *handle)
{
	CUresult ret = cu_enter(__func__);
	struct library *library;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	library = (struct library *)cu_find(CU_LIBRARY, cu_key(handle));
	if (library != NULL && library->kernel == NULL) {
		library->kernel = calloc(1, sizeof(*library->kernel));
		if (library->kernel != NULL) {
			library->kernel->object.kind = CU_KERNEL;
			library->kernel->library = library;
			cu_add(&library->kernel->object);	/* of no bytes: cannot fail */
		}
	}
	if (library != NULL)
		*out = library->kernel;
	cu_unlock();
	if (library == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A kernel that was asked for by name is its function. */
static CUresult find_kernel(const char *call, const void *handle, struct library **library,
			    struct cu_function_object **function)
{
	CUresult ret = cu_enter(call);
	struct kernel *kernel;

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	kernel = (struct kernel *)cu_find(CU_KERNEL, cu_key(handle));
	*function = (struct cu_function_object *)cu_find(CU_FUNCTION, cu_key(handle));
	*library = kernel != NULL ? kernel->library : *function != NULL ? (*function)->module->library : NULL;
	cu_unlock();
	return *library != NULL || *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API CUresult cuKernelGetLibrary(struct library **out, void *handle)
{
	struct cu_function_object *function;
	CUresult ret = find_kernel(__func__, handle, out, &function);

	return ret == CUDA_SUCCESS && *out == NULL ? CUDA_ERROR_INVALID_HANDLE : ret;
}

SIM_API CUresult cuKernelGetFunction(struct cu_function_object **out, void *handle)
{
	struct cu_function_object *function;
	struct cu_module *module;
	struct library *library;
	CUresult ret;

	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	ret = find_kernel(__func__, handle, &library, &function);
	if (ret != CUDA_SUCCESS)
		return ret;
	if (function == NULL) {
		ret = module_of(__func__, library, &module);
		if (ret != CUDA_SUCCESS)
			return ret;
		cu_lock();
		ret = cu_module_function(module, ENUMERATED, &function);
		cu_unlock();
	}
	*out = function;
	return ret;
}
