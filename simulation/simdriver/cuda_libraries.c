/* cuda_libraries.c - libraries: modules of no context, loaded into one when a kernel is asked for. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "cuda_modules.h"

struct library {
	struct cu_object object;
	struct cu_module *module;	/* NULL before the first kernel */
};

static void drop_library(struct cu_object *object)
{
	struct cu_object *module = cu_find(CU_MODULE, cu_key(((struct library *)object)->module));

	if (module != NULL)
		cu_drop(module);
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
