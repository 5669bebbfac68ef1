/* nullloads.c - the driver that answers at once, beside a neighbour that takes 30 MiB of the card at each load of a
 * module. An image that is a number takes so many MiB, an ELF file 4. It writes into the options of a load, as drivers do:
 * what it has filled of the log, of which a second load has none. */
#define cuMemGetInfo_v2 untaken_info
#include "nulldriver.c"
#undef cuMemGetInfo_v2

#define MIB (1ull << 20)
#define NEIGHBOUR (30 * MIB)
#define ELF_TAKES (4 * MIB)
#define LOG 3				/* CU_JIT_INFO_LOG_BUFFER, and how large it is */
#define LOG_BYTES 4

static uint64_t taken;
static int loads;

API int null_driver_loads(void)
{
	return loads;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	*total = 1ull << 34;
	*free_bytes = *total - taken;
	return CUDA_SUCCESS;
}

static void write_log(unsigned int count, const int *options, void **values)
{
	const char *log = loads == 1 ? "42 registers" : "";

	for (unsigned int i = 0; i + 1 < count; i++) {
		if (options[i] != LOG || options[i + 1] != LOG_BYTES)
			continue;
		if ((uintptr_t)values[i + 1] > strlen(log))
			strcpy(values[i], log);
		values[i + 1] = (void *)(uintptr_t)strlen(log);
	}
}

API CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, int *options, void **values)
{
	loads++;
	taken += NEIGHBOUR + (memcmp(image, "\177ELF", 4) == 0 ? ELF_TAKES : strtoull(image, NULL, 10) * MIB);
	write_log(count, options, values);
	*out = (CUmodule)(uintptr_t)(0x5000 + loads);
	return CUDA_SUCCESS;
}

API CUresult cuModuleUnload(CUmodule module)
{
	(void)module;
	return CUDA_SUCCESS;
}

API CUresult cuLibraryLoadData(CUlibrary *out, const void *code, int *jit, void **jit_values, unsigned int jit_count,
			       int *options, void **values, unsigned int count)
{
	(void)options;
	(void)values;
	(void)count;
	return cuModuleLoadDataEx((CUmodule *)out, code, jit_count, jit, jit_values);
}

API CUresult cuLibraryUnload(CUlibrary library)
{
	return cuModuleUnload((CUmodule)library);
}
