/* cuda_graph_info.c - what nodes say of themselves. */
#include "cuda_graph.h"
#include "cuda_graph_params.h"

static CUresult of_kind(const char *call, const struct cu_node *node, enum cu_node_kind kind,
			const void *answer)
{
	if (node == NULL || answer == NULL || node->kind != kind)
		return CUDA_ERROR_INVALID_VALUE;
	return cu_enter(call);
}

SIM_API CUresult cuGraphMemAllocNodeGetParams(struct cu_node *node, struct alloc_params *out)
{
	CUresult ret = of_kind(__func__, node, NODE_ALLOC, out);

	if (ret == CUDA_SUCCESS)
		*out = (struct alloc_params){ .type = 1, .location = { 1, cu_dev_index(node->dev) },
					      .bytes = node->bytes, .address = node->key };
	return ret;
}

SIM_API CUresult cuGraphMemFreeNodeGetParams(struct cu_node *node, CUdeviceptr *out)
{
	CUresult ret = of_kind(__func__, node, NODE_FREE, out);

	if (ret == CUDA_SUCCESS)
		*out = node->key;
	return ret;
}

SIM_API CUresult cuGraphChildGraphNodeGetGraph(struct cu_node *node, struct cu_graph **out)
{
	CUresult ret = of_kind(__func__, node, NODE_GRAPH, out);

	if (ret == CUDA_SUCCESS)
		*out = node->child;
	return ret;
}
