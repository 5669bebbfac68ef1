/* cuda.h - the part of the CUDA driver interface that the limiter stands in: numbers and layouts as
 * published, nothing else. Names without _vN are the oldest form: 32-bit pointers and sizes. */
#ifndef EDGEGPU_LIMITER_CUDA_H
#define EDGEGPU_LIMITER_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned int CUdeviceptr_v1;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef unsigned int CUlogicalEndpointId;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUgreenCtx_st *CUgreenCtx;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_NOT_SUPPORTED = 801,
};

enum { CU_PROC_ADDRESS_SUCCESS = 0, CU_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1 };

struct CUuuid {
	uint8_t bytes[16];
};

struct CUcheckpointArgs {		/* of a checkpoint; all 0: to the host, at once */
	uint64_t words[8];
};

struct CUarray_descriptor_v1 {
	unsigned int width, height;
	int format;
	unsigned int channels;
};

struct CUarray_descriptor {
	size_t width, height;
	int format;
	unsigned int channels;
};

struct CUarray3d_descriptor_v1 {
	unsigned int width, height, depth;
	int format;
	unsigned int channels, flags;
};

struct CUarray3d_descriptor {
	size_t width, height, depth;
	int format;
	unsigned int channels, flags;
};

#define CU_ARRAY3D_LAYERED 0x01		/* depth counts layers, which mipmaps do not halve */
#define CU_ARRAY3D_CUBEMAP 0x04
#define CU_ARRAY3D_SPARSE 0x40		/* backed by cuMemMapArrayAsync */
#define CU_ARRAY3D_DEFERRED 0x80

struct CUmem_location {
	int type, id;
};

#define CU_MEM_LOCATION_DEVICE 1

struct CUlaunch_config {		/* of cuLaunchKernelEx */
	unsigned int grid[3], block[3], shared;
	CUstream stream;
	void *attributes;
	unsigned int count;
};

struct CUlaunch_params {		/* of a cooperative launch on several cards */
	void *function;
	unsigned int grid[3], block[3], shared;
	CUstream stream;
	void **params;
};

struct CUmem_allocation_prop {
	int type, handle_types;
	struct CUmem_location location;
	void *win32;
	struct {
		unsigned char compression, rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

struct CUarray_map {			/* of cuMemMapArrayAsync */
	int kind;
	void *array;			/* or a mipmapped one */
	int part;
	uint64_t where[4];
	int operation, handle_type;
	CUmemGenericAllocationHandle handle;
	uint64_t offset;
	unsigned int devices, flags, reserved[2];
};

_Static_assert(sizeof(struct CUarray_map) == 96, "as in cuda.h");

#define CU_MEM_OPERATION_MAP 1

struct CUmem_pool_props {
	int type, handle_types;
	struct CUmem_location location;
	void *win32;
	size_t most;
	unsigned short usage;
	unsigned char reserved[54];
};

#define CU_MEM_ALLOCATION_PINNED 1

struct CUmem_alloc_node {
	struct CUmem_pool_props props;
	const void *access;
	size_t access_count, bytes;
	CUdeviceptr at;			/* out */
};

_Static_assert(sizeof(struct CUmem_alloc_node) == 120, "as in cuda.h");

struct CUgraph_instantiate_params {
	uint64_t flags;
	CUstream upload;
	CUgraphNode error_node;
	int result;
};

#define PER_THREAD_STREAM ((CUstream)2)
#define LAST_SPECIAL_STREAM 2		/* handles up to it name default streams */

enum { CU_CAPTURE_RELAXED = 2 };
enum { CU_MEMPOOL_RESERVED = 5, CU_MEMPOOL_USED = 7, CU_GRAPH_MEM_RESERVED = 2 };
enum { CU_POINTER_MEMORY_TYPE = 2, CU_POINTER_IS_MANAGED = 8, CU_MEMORYTYPE_HOST = 1 };
enum { CU_GRAPH_NODE_GRAPH = 4, CU_GRAPH_NODE_ALLOC = 10, CU_GRAPH_NODE_FREE = 11 };
enum { CU_LIMIT_STACK = 0, CU_LIMIT_PRINTF = 1, CU_LIMIT_HEAP = 2 };
enum {
	CU_ATTRIBUTE_MULTIPROCESSORS = 16,
	CU_ATTRIBUTE_THREADS_PER_MULTIPROCESSOR = 39,
	CU_ATTRIBUTE_MPS_ENABLED = 133,		/* since 12.1 */
};

struct CUctx_create_params {		/* of cuCtxCreate_v4 */
	void *affinity;
	int affinities;
	void *graphics;
};

#endif
