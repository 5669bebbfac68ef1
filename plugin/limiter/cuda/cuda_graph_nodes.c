/* cuda_graph_nodes.c - the allocation nodes of a graph, which have their addresses from the start. */
#include <stdlib.h>

#include "cuda_graph.h"

#define DEPTH_MAX 32			/* of graphs in graphs */

struct allocation {
	CUdeviceptr at;
	size_t bytes;
	CUdevice device;
	bool freed;
};

struct found {
	struct allocation *all;
	size_t count, room;
};

static void add(struct found *found, const struct CUmem_alloc_node *node)
{
	if (found->count == found->room) {
		size_t room = found->room != 0 ? found->room * 2 : 64;
		struct allocation *all = realloc(found->all, room * sizeof(*all));

		if (all == NULL)
			return;
		found->all = all;
		found->room = room;
	}
	found->all[found->count++] = (struct allocation){ node->at, node->bytes,
							  node->props.location.id, false };
}

static void release(struct found *found, CUdeviceptr at)
{
	for (size_t i = 0; i < found->count; i++)
		if (found->all[i].at == at && !found->all[i].freed) {
			found->all[i].freed = true;
			return;
		}
}

/* First all that allocate, then all that free: nodes come in no order. */
static void walk(struct found *found, CUgraph graph, bool freeing, int depth)
{
	size_t count = 0;
	CUgraphNode *nodes;

	if (depth > DEPTH_MAX || CALL(cuGraphGetNodes, graph, NULL, &count) != CUDA_SUCCESS || count == 0)
		return;
	nodes = calloc(count, sizeof(*nodes));
	if (nodes == NULL || CALL(cuGraphGetNodes, graph, nodes, &count) != CUDA_SUCCESS)
		count = 0;
	for (size_t i = 0; i < count; i++) {
		struct CUmem_alloc_node alloc = { 0 };
		CUgraph child = NULL;
		CUdeviceptr at = 0;
		int type = -1;

		CALL(cuGraphNodeGetType, nodes[i], &type);
		if (type == CU_GRAPH_NODE_ALLOC && !freeing &&
		    CALL(cuGraphMemAllocNodeGetParams, nodes[i], &alloc) == CUDA_SUCCESS)
			add(found, &alloc);
		else if (type == CU_GRAPH_NODE_FREE && freeing &&
			 CALL(cuGraphMemFreeNodeGetParams, nodes[i], &at) == CUDA_SUCCESS)
			release(found, at);
		else if (type == CU_GRAPH_NODE_GRAPH &&
			 CALL(cuGraphChildGraphNodeGetGraph, nodes[i], &child) == CUDA_SUCCESS)
			walk(found, child, freeing, depth + 1);
	}
	free(nodes);
}

static int by_address(const void *one, const void *other)
{
	CUdeviceptr a = ((const struct allocation *)one)->at, b = ((const struct allocation *)other)->at;

	return a < b ? -1 : a > b;
}

/* How many addresses of a device are in any of them. */
static uint64_t united(const struct found *found, CUdevice device, bool outliving_alone)
{
	uint64_t sum = 0;
	CUdeviceptr end = 0;

	for (size_t i = 0; i < found->count; i++) {
		const struct allocation *one = &found->all[i];
		CUdeviceptr from = one->at > end ? one->at : end;

		if (one->device != device || (outliving_alone && one->freed) ||
		    one->at + one->bytes <= from)
			continue;
		sum += one->at + one->bytes - from;
		end = one->at + one->bytes;
	}
	return sum;
}

unsigned int graph_footprints(CUgraph graph, struct footprint out[FOOTPRINTS_MAX])
{
	struct found found = { NULL, 0, 0 };
	unsigned int cards = 0, i;

	walk(&found, graph, false, 0);
	if (found.count > 0) {
		walk(&found, graph, true, 0);
		qsort(found.all, found.count, sizeof(*found.all), by_address);
	}
	for (size_t n = 0; n < found.count && cards < FOOTPRINTS_MAX; n++) {
		CUdevice device = found.all[n].device;

		for (i = 0; i < cards && out[i].device != device; i++)
			;
		if (i < cards)
			continue;
		out[cards] = (struct footprint){ device, 0, united(&found, device, true) };
		out[cards].inside = united(&found, device, false) - out[cards].outliving;
		cards++;
	}
	free(found.all);
	return cards;
}
