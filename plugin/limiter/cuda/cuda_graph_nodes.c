/* cuda_graph_nodes.c - the allocation nodes of a graph, which have their addresses from the start. */
#define _GNU_SOURCE

#include "cuda_graph.h"
#include "system.h"

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
	bool lost;			/* there was no room to look at something */
	bool untold;			/* the driver did not say something */
};

/* NULL: there is none. */
static void *memory(size_t number, size_t each)
{
	size_t bytes;

	return __builtin_mul_overflow(number, each, &bytes) ? NULL : system_map(bytes, -1);
}

static void give_back(void *at, size_t number, size_t each)
{
	if (at != NULL)
		system_unmap(at, number * each);
}

static void add(struct found *found, const struct CUmem_alloc_node *node)
{
	if (found->count == found->room) {
		size_t room = found->room != 0 ? found->room * 2 : 64;
		struct allocation *all = memory(room, sizeof(*all));

		if (all == NULL) {
			found->lost = true;
			return;
		}
		for (size_t i = 0; i < found->count; i++)
			all[i] = found->all[i];
		give_back(found->all, found->room, sizeof(*all));
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

static void walk(struct found *found, CUgraph graph, bool freeing, int depth);

static void look(struct found *found, CUgraphNode node, bool freeing, int depth)
{
	struct CUmem_alloc_node alloc = { 0 };
	CUgraph child = NULL;
	CUdeviceptr at = 0;
	int type = -1;

	if (CALL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS) {
		found->untold = true;
	} else if (type == CU_GRAPH_NODE_ALLOC && !freeing) {
		if (CALL(cuGraphMemAllocNodeGetParams, node, &alloc) == CUDA_SUCCESS)
			add(found, &alloc);
		else
			found->untold = true;
	} else if (type == CU_GRAPH_NODE_FREE && freeing) {
		if (CALL(cuGraphMemFreeNodeGetParams, node, &at) == CUDA_SUCCESS)
			release(found, at);
	} else if (type == CU_GRAPH_NODE_GRAPH) {
		if (CALL(cuGraphChildGraphNodeGetGraph, node, &child) == CUDA_SUCCESS)
			walk(found, child, freeing, depth + 1);
		else
			found->untold = true;
	}
}

/* First all that allocate, then all that free: nodes come in no order. */
static void walk(struct found *found, CUgraph graph, bool freeing, int depth)
{
	size_t count = 0, room;
	CUgraphNode *nodes;

	found->lost |= depth > DEPTH_MAX;
	if (found->lost || CALL(cuGraphGetNodes, graph, NULL, &count) != CUDA_SUCCESS) {
		found->untold = true;
		return;
	}
	if (count == 0)
		return;
	room = count;
	nodes = memory(room, sizeof(*nodes));
	if (nodes == NULL) {
		found->lost = true;
		return;
	}
	if (CALL(cuGraphGetNodes, graph, nodes, &count) != CUDA_SUCCESS || count > room) {
		found->untold = true;
		count = 0;
	}
	for (size_t i = 0; i < count; i++)
		look(found, nodes[i], freeing, depth);
	give_back(nodes, room, sizeof(*nodes));
}

/* By address; a heap sort, for there may be many. */
static void sift(struct allocation *all, size_t at, size_t count)
{
	struct allocation moved = all[at];

	for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
		if (child + 1 < count && all[child].at < all[child + 1].at)
			child++;
		if (all[child].at <= moved.at)
			break;
		all[at] = all[child];
		at = child;
	}
	all[at] = moved;
}

static void sort(struct allocation *all, size_t count)
{
	for (size_t i = count / 2; i > 0; i--)
		sift(all, i - 1, count);
	for (size_t left = count; left > 1; left--) {
		struct allocation last = all[left - 1];

		all[left - 1] = all[0];
		all[0] = last;
		sift(all, 0, left - 1);
	}
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

int graph_footprints(CUgraph graph, struct footprint out[FOOTPRINTS_MAX], bool *told)
{
	struct found found = { NULL, 0, 0, false, false };
	int cards = 0, i;

	walk(&found, graph, false, 0);
	if (found.count > 0) {
		walk(&found, graph, true, 0);
		sort(found.all, found.count);
	}
	for (size_t n = 0; n < found.count && !found.lost; n++) {
		CUdevice device = found.all[n].device;

		for (i = 0; i < cards && out[i].device != device; i++)
			;
		if (i < cards)
			continue;
		if (cards == FOOTPRINTS_MAX) {
			found.lost = true;
			break;
		}
		out[cards] = (struct footprint){ device, 0, united(&found, device, true) };
		out[cards].inside = united(&found, device, false) - out[cards].outliving;
		cards++;
	}
	give_back(found.all, found.room, sizeof(*found.all));
	*told = !found.untold;
	return found.lost ? -1 : cards;
}
