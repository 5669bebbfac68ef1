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
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef unsigned long long CUmemGenericAllocationHandle;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_SUPPORTED = 801,
};

enum { CU_PROC_ADDRESS_SUCCESS = 0, CU_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1 };

struct CUuuid {
	uint8_t bytes[16];
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

#endif
