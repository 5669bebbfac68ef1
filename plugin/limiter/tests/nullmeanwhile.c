/* nullmeanwhile.c - the driver that answers at once, with a second thread of the program in each call: the function that
 * null_driver_calls was given last is called when the call begins, and when its answer is written. */
#define cuDeviceGetUuid_v2 awake_uuid
#define cuCtxGetCurrent awake_current
#define cuMemAlloc_v2 quiet_alloc
#define cuMemAllocManaged quiet_managed
#define cuMemAllocPitch_v2 quiet_pitch
#define cuMemAllocAsync quiet_async
#define cuArray3DCreate_v2 quiet_array
#define cuMipmappedArrayCreate quiet_mipmap
#define cuMemCreate quiet_create
#define cuMemRetainAllocationHandle quiet_retain
#define cuMemPoolCreate quiet_pool_create
#define cuCtxCreate_v2 quiet_context
#define cuDevicePrimaryCtxRetain quiet_primary
#define cuModuleLoadData unsized_module
#define cuMemGetInfo_v2 untaken_info
#define cuGetProcAddress_v2 quiet_address
#define cuMemMapArrayAsync quiet_tiles
#define cuGraphInstantiateWithFlags quiet_instantiate
#include "nulldriver.c"
#define cuMemMap waiting_map
#include "nullobjects.c"
#undef cuMemMap
#undef cuMemMapArrayAsync
#undef cuGraphInstantiateWithFlags
#undef cuDeviceGetUuid_v2
#undef cuCtxGetCurrent
#undef cuMemAlloc_v2
#undef cuMemAllocManaged
#undef cuMemAllocPitch_v2
#undef cuMemAllocAsync
#undef cuArray3DCreate_v2
#undef cuMipmappedArrayCreate
#undef cuMemCreate
#undef cuMemRetainAllocationHandle
#undef cuMemPoolCreate
#undef cuCtxCreate_v2
#undef cuDevicePrimaryCtxRetain
#undef cuModuleLoadData
#undef cuMemGetInfo_v2
#undef cuGetProcAddress_v2

static int asleep;			/* as before cuInit, to whoever asks for a card or a context */

API void null_driver_sleeps(int sleeps)
{
	asleep = sleeps;
}

API CUresult cuDeviceGetUuid_v2(struct CUuuid *out, CUdevice device)
{
	return asleep ? CUDA_ERROR_NOT_INITIALIZED : awake_uuid(out, device);
}

API CUresult cuCtxGetCurrent(CUcontext *out)
{
	return asleep ? CUDA_ERROR_NOT_INITIALIZED : awake_current(out);
}

static unsigned long long told;		/* what the last description said, when the driver read it */

API unsigned long long null_driver_told(void)
{
	return told;
}

#define MEANWHILE(read, ...)                                                                      \
	do {                                                                                      \
		CUresult ret;                                                                     \
		call_back();                                                                      \
		told = read;                                                                      \
		ret = __VA_ARGS__;                                                                \
		call_back();                                                                      \
		return ret;                                                                       \
	} while (0)

API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	MEANWHILE(0, quiet_alloc(out, bytes));
}

API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	MEANWHILE(0, quiet_managed(out, bytes, flags));
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	MEANWHILE(0, quiet_pitch(out, pitch, width, height, element));
}

API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	MEANWHILE(0, quiet_async(out, bytes, stream));
}

API CUresult cuArray3DCreate_v2(CUarray *out, const struct CUarray3d_descriptor *wanted)
{
	MEANWHILE(wanted->width, quiet_array(out, wanted));
}

API CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const struct CUarray3d_descriptor *wanted,
				    unsigned int levels)
{
	MEANWHILE(wanted->width, quiet_mipmap(out, wanted, levels));
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const struct CUmem_allocation_prop *prop,
			 unsigned long long flags)
{
	MEANWHILE((unsigned int)prop->location.type, quiet_create(out, bytes, prop, flags));
}

API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *at)
{
	MEANWHILE(0, quiet_retain(out, at));
}

API CUresult cuMemPoolCreate(CUmemoryPool *out, const struct CUmem_pool_props *props)
{
	MEANWHILE(0, quiet_pool_create(out, props));
}

API CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
	MEANWHILE(0, quiet_context(out, flags, device));
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	MEANWHILE(0, quiet_primary(out, device));
}

static uint64_t loaded;

struct CUmod_st {
	uint64_t bytes;
};

/* An image is the number of the MiB that it takes. */
static CUresult sized_module(CUmodule *out, const char *image)
{
	*out = malloc(sizeof(**out));
	(*out)->bytes = strtoull(image, NULL, 10) << 20;
	loaded += (*out)->bytes;
	return CUDA_SUCCESS;
}

API CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	MEANWHILE(0, sized_module(out, image));
}

API CUresult cuModuleUnload(CUmodule module)
{
	loaded -= module->bytes;
	free(module);
	return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	*free_bytes = *total = (1ull << 34) - loaded;
	return CUDA_SUCCESS;
}

static CUresult look_up(const char *symbol, void **out, int *status)
{
	*out = strcmp(symbol, "cuMemAlloc") == 0 ? (void *)&cuMemAlloc_v2 : (void *)&cuCtxSetCurrent;
	*status = 0;
	return CUDA_SUCCESS;
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status)
{
	(void)version;
	(void)flags;
	MEANWHILE(0, look_up(symbol, out, status));
}

API CUresult cuMemMapArrayAsync(struct CUarray_map *list, unsigned int count, CUstream stream)
{
	MEANWHILE(list[0].handle, quiet_tiles(list, count, stream));
}

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	MEANWHILE(0, quiet_instantiate(out, graph, flags));
}
