/* cuda_modules.c - modules: any image loads and has every function that is asked of it.
 *
 * With EDGEGPU_SIM_MODULE_LOADING=LAZY in the environment a module's code comes with the first function that is
 * asked for, else with the module.
 *
 * A function's time is in its name: spin_50ms, step_100us, tick_700ns. One that is called sim_spin runs
 * for its first argument, in ns as 64 bits. All others run for the cards file's kernel_us. Each thread of local_65536 needs
 * so many bytes of local memory. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "cuda_graph.h"
#include "cuda_modules.h"

#define GLOBAL_BYTES 4096
#define BY_ARGUMENT "sim_spin"
#define LOCAL "local_"

static void drop_module(struct cu_object *object)
{
	struct cu_module *module = (struct cu_module *)object;
	struct cu_object *global = module->global != 0 ? cu_find(CU_MEMORY, module->global) : NULL;
	struct cu_object *code = module->code != 0 ? cu_find(CU_CODE, module->code) : NULL;

	while (module->functions != NULL) {
		struct cu_function_object *function = module->functions;

		module->functions = function->next;
		cu_drop(&function->object);
	}
	if (global != NULL)
		cu_drop(global);
	if (code != NULL)
		cu_drop(code);
	free(module);
}

static bool is_lazy(void)
{
	const char *mode = getenv("EDGEGPU_SIM_MODULE_LOADING");

	return mode != NULL && strcmp(mode, "LAZY") == 0;
}

/* Where it is not lazy the call is not simulated: NVIDIA's runtime asks for the mode first, and would go on to
 * tables that are stubs. */
SIM_API CUresult cuModuleGetLoadingMode(int *out)
{
	if (!is_lazy())
		return CUDA_ERROR_NOT_SUPPORTED;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = 2;
	return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult load_code(struct cu_module *module)
{
	struct cu_object *code;
	CUresult ret;

	if (!is_lazy() || module->code != 0)
		return CUDA_SUCCESS;
	code = calloc(1, sizeof(*code));
	if (code == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code->kind = CU_CODE;
	code->ctx = module->object.ctx;
	code->dev = module->object.dev;
	code->bytes = cu_driver()->module_mib * SIM_MIB;
	ret = cu_add(code);
	if (ret != CUDA_SUCCESS)
		free(code);
	else
		module->code = cu_key(code);
	return ret;
}

CUresult cu_module_make(const char *call, struct cu_module **out)
{
	struct cu_object *object;
	CUresult ret = cu_unsafe();

	if (ret == CUDA_SUCCESS)
		ret = cu_make(call, CU_MODULE, sizeof(**out), &object);
	if (ret != CUDA_SUCCESS)
		return ret;
	object->bytes = is_lazy() ? 0 : cu_driver()->module_mib * SIM_MIB;
	object->drop = drop_module;
	ret = cu_keep(object);
	if (ret == CUDA_SUCCESS)
		*out = (struct cu_module *)object;
	return ret;
}

/* The time at the name's end; 0 where there is none. */
static uint64_t named_ns(const char *name)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = { { "ns", 1 }, { "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 } };
	const char *at = strrchr(name, '_');
	char *end;
	uint64_t count;

	if (at == NULL || !isdigit((unsigned char)at[1]))
		return 0;
	count = strtoull(at + 1, &end, 10);
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (strcmp(end, units[i].unit) == 0)
			return count * units[i].ns;
	return 0;
}

CUresult cu_module_function(struct cu_module *module, const char *name, struct cu_function_object **out)
{
	struct cu_function_object *function = module->functions;
	uint64_t ns = named_ns(name);
	CUresult ret = load_code(module);

	if (ret != CUDA_SUCCESS)
		return ret;
	while (function != NULL && strcmp(function->name, name) != 0)
		function = function->next;
	if (function == NULL) {
		function = calloc(1, sizeof(*function));
		if (function == NULL)
			return CUDA_ERROR_OUT_OF_MEMORY;
		function->object.kind = CU_FUNCTION;
		function->module = module;
		snprintf(function->name, sizeof(function->name), "%s", name);
		function->ns = ns > 0 ? ns : cu_driver()->kernel_us * 1000;
		function->by_argument = strcmp(name, BY_ARGUMENT) == 0;
		if (strncmp(name, LOCAL, strlen(LOCAL)) == 0)
			function->local = atoi(name + strlen(LOCAL));
		function->next = module->functions;
		module->functions = function;
		cu_add(&function->object);	/* of no bytes: cannot fail */
	}
	*out = function;
	return CUDA_SUCCESS;
}

CUresult cu_module_global(struct cu_module *module, CUdeviceptr *out, size_t *bytes)
{
	struct cu_object *object;

	if (module->global == 0) {
		object = calloc(1, sizeof(*object));
		if (object == NULL)
			return CUDA_ERROR_OUT_OF_MEMORY;
		object->kind = CU_MEMORY;
		object->key = cu_addresses(GLOBAL_BYTES, GLOBAL_BYTES);
		object->size = GLOBAL_BYTES;
		cu_add(object);		/* of no bytes: the module has them */
		module->global = object->key;
	}
	if (out != NULL)
		*out = module->global;
	if (bytes != NULL)
		*bytes = GLOBAL_BYTES;
	return CUDA_SUCCESS;
}

int cu_kernel_local(void *handle)
{
	struct cu_function_object *function;
	int bytes = 0;

	cu_lock();
	function = (struct cu_function_object *)cu_find(CU_FUNCTION, cu_key(handle));
	if (function != NULL)
		bytes = function->local;
	cu_unlock();
	return bytes;
}

bool cu_kernel_ns(void *handle, void **arguments, uint64_t *ns)
{
	struct cu_function_object *function;

	cu_lock();
	function = (struct cu_function_object *)cu_find(CU_FUNCTION, cu_key(handle));
	if (function != NULL) {
		*ns = function->ns;
		if (function->by_argument && arguments != NULL && arguments[0] != NULL)
			memcpy(ns, arguments[0], sizeof(*ns));
	}
	cu_unlock();
	return function != NULL;
}

SIM_API CUresult cuModuleLoadData(struct cu_module **out, const void *image)
{
	if (out == NULL || image == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return cu_module_make(__func__, out);
}

SIM_API CUresult cuModuleLoadDataEx(struct cu_module **out, const void *image, unsigned int count,
				    int *options, void **values)
{
	(void)count;
	(void)options;
	(void)values;
	if (out == NULL || image == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return cu_module_make(__func__, out);
}

SIM_API CUresult cuModuleLoadFatBinary(struct cu_module **out, const void *image)
{
	if (out == NULL || image == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return cu_module_make(__func__, out);
}

SIM_API CUresult cuModuleLoad(struct cu_module **out, const char *path)
{
	FILE *file;

	if (out == NULL || path == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	file = fopen(path, "re");
	if (file == NULL)
		return CUDA_ERROR_FILE_NOT_FOUND;
	fclose(file);
	return cu_module_make(__func__, out);
}

SIM_API CUresult cuModuleUnload(struct cu_module *module)
{
	return cu_end(__func__, CU_MODULE, cu_key(module), CUDA_ERROR_INVALID_HANDLE);
}

static struct cu_module *find(const struct cu_module *handle)
{
	return (struct cu_module *)cu_find(CU_MODULE, cu_key(handle));
}

SIM_API CUresult cuModuleGetFunction(struct cu_function_object **out, struct cu_module *handle,
				     const char *name)
{
	CUresult ret = cu_enter(__func__);
	struct cu_module *module;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL || name == NULL || *name == '\0')
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	module = find(handle);
	ret = module == NULL ? CUDA_ERROR_INVALID_HANDLE : cu_module_function(module, name, out);
	cu_unlock();
	return ret;
}

SIM_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *out, size_t *bytes, struct cu_module *handle,
				      const char *name)
{
	CUresult ret = cu_enter(__func__);
	struct cu_module *module;

	if (ret != CUDA_SUCCESS)
		return ret;
	if (name == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	module = find(handle);
	ret = module == NULL ? CUDA_ERROR_INVALID_HANDLE : cu_module_global(module, out, bytes);
	cu_unlock();
	return ret;
}
