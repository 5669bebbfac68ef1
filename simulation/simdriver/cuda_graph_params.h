/* cuda_graph_params.h - what nodes are described by, in CUDA's layouts. */
#ifndef EDGEGPU_SIM_CUDA_GRAPH_PARAMS_H
#define EDGEGPU_SIM_CUDA_GRAPH_PARAMS_H

#include "cuda_graph.h"

struct kernel_params {			/* CUDA_KERNEL_NODE_PARAMS: what its versions have in common */
	void *function;
	unsigned int grid[3], block[3], shared;
	void **arguments, **extra;
};

struct alloc_params {			/* CUDA_MEM_ALLOC_NODE_PARAMS */
	int type, handles;
	int location[2];		/* type, device */
	void *win32;
	size_t most;
	unsigned char reserved[56];
	const void *access;
	size_t access_count, bytes;
	CUdeviceptr address;		/* out */
};

struct host_params {			/* CUDA_HOST_NODE_PARAMS */
	void (*call)(void *data);
	void *data;
};

struct node_params {			/* CUgraphNodeParams */
	int kind, reserved[3];
	union {
		long long pad[29];
		struct kernel_params kernel;
		struct alloc_params alloc;
		struct host_params host;
		CUdeviceptr free;
		struct cu_graph *graph;
	};
	long long reserved2;
};

_Static_assert(sizeof(struct alloc_params) == 120, "as in cuda.h");
_Static_assert(sizeof(struct node_params) == 256, "as in cuda.h");

#endif
