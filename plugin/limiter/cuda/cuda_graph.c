/* cuda_graph.c - memory of graphs: taken when one is launched or uploaded, kept for all graphs of the
 * device until it is trimmed. An allocation in a capture is such a node, too.
 *
 * What all graphs of a device hold is one account (cuda_account.c). A launch reserves all that the
 * graph can take; where that does not fit, it reserves less what it can certainly use again: graphs of
 * one stream run one after the other and share what each frees itself; a graph that frees what it
 * left behind when it is launched again has that. Else what no graph uses is given back first.
 *
 * Several threads that launch graphs at once may find the same memory to use again; the account then
 * shows more than the limit, and nothing is given until it is below. */
#include "account.h"
#include "gpu_time.h"
#include "cuda_graph.h"

#define AUTO_FREE 1u			/* a flag of an executable: its next launch frees what is left */

struct graph_launch {
	unsigned int count;
	struct ledger_entry parts[FOOTPRINTS_MAX];	/* bytes: freed inside; of: outliving; by card */
	struct charge charges[FOOTPRINTS_MAX];
};

static CUdevice device_of(const struct ledger_entry *part)
{
	return (CUdevice)(part->references >> 1);
}

static void learn(CUgraphExec exec, CUgraph graph, unsigned long long flags)
{
	struct footprint found[FOOTPRINTS_MAX];
	struct process *own = process_own();
	unsigned int count = own != NULL ? graph_footprints(graph, found) : 0, known = 0;

	for (unsigned int i = 0; i < count; i++) {
		struct card *card = charge_device_card(found[i].device);

		if (card == NULL || card->index < 0)
			continue;
		account_open(LEDGER_GRAPHS, (uint64_t)found[i].device, card->index, 0);
		ledger_put((struct ledger_entry){
			.key = (uintptr_t)exec + known, .kind = LEDGER_EXECUTABLE,
			.bytes = found[i].inside, .of = found[i].outliving, .card = (int16_t)card->index,
			.references = (unsigned int)found[i].device << 1 | (flags & AUTO_FREE) });
		known++;
	}
	if (known > 0)
		__atomic_add_fetch(&own->executables, known, __ATOMIC_RELEASE);
}

/* Each card of an executable has the handle's next number as its key. */
static void look_up(struct graph_launch *launch, CUgraphExec exec, bool take)
{
	struct process *own = process_own();
	struct ledger_entry *part = launch->parts;

	launch->count = 0;
	if (own == NULL || __atomic_load_n(&own->executables, __ATOMIC_ACQUIRE) == 0)
		return;
	while (launch->count < FOOTPRINTS_MAX &&
	       (take ? ledger_take(LEDGER_EXECUTABLE, (uintptr_t)exec + launch->count, part) :
		ledger_get(LEDGER_EXECUTABLE, (uintptr_t)exec + launch->count, part))) {
		launch->count++;
		part++;
	}
	if (take)
		__atomic_sub_fetch(&own->executables, launch->count, __ATOMIC_RELEASE);
}

static struct reused *find_reused(struct process *own, uint64_t key, int card)
{
	for (int i = 0; i < REUSED_MAX; i++)
		if (own->reused[i].key == key && own->reused[i].card == card)
			return &own->reused[i];
	return NULL;
}

static uint64_t reusable(uint64_t key, int card, uint64_t most)
{
	struct process *own = process_own();
	struct reused *reused;
	uint64_t bytes;

	mutex_lock(&own->graphs);
	reused = find_reused(own, key, card);
	bytes = reused != NULL ? reused->bytes : 0;
	mutex_unlock(&own->graphs);
	return bytes < most ? bytes : most;
}

static void remember(uint64_t key, int card, uint64_t bytes)
{
	struct process *own = process_own();
	struct reused *reused;

	if (bytes == 0)
		return;
	mutex_lock(&own->graphs);
	reused = find_reused(own, key, card);
	if (reused == NULL) {
		reused = &own->reused[own->reused_next++ % REUSED_MAX];
		*reused = (struct reused){ key, 0, card };
	}
	if (bytes > reused->bytes)
		reused->bytes = bytes;
	mutex_unlock(&own->graphs);
}

static bool reserve(struct charge *charge, const struct ledger_entry *part, CUgraphExec exec,
		    uint64_t stream)
{
	struct card *card = charge_indexed_card(part->card);
	uint64_t all = part->bytes + part->of, again;

	if (charge_fits(charge, card, all))
		return true;
	if (usage_total(card->index) <= limits_room(card)) {
		again = reusable(stream, part->card, part->bytes);
		if ((part->references & AUTO_FREE) != 0)
			again += reusable((uintptr_t)exec, part->card, part->of);
		if (charge_fits(charge, card, all - again))
			return true;
	}
	return charge_card(charge, card, all);
}

static void give_back(const struct graph_launch *launch, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		usage_release(launch->charges[i].card->index, launch->charges[i].bytes);
}

/* The default streams of threads have one name for all. */
static uint64_t stream_key(CUstream stream, bool per_thread)
{
	if (stream == PER_THREAD_STREAM || (per_thread && stream == NULL))
		return (uintptr_t)&charge_depth;
	return (uintptr_t)stream;
}

static bool capturing(CUstream stream, bool per_thread)
{
	int status = 0;

	return (per_thread ? CALL(cuStreamIsCapturing_ptsz, stream, &status) :
		CALL(cuStreamIsCapturing, stream, &status)) == CUDA_SUCCESS && status != 0;
}

/* False: it does not fit. */
static bool begin(struct graph_launch *launch, CUgraphExec exec, CUstream stream, bool per_thread)
{
	look_up(launch, exec, false);
	if (launch->count > 0 && capturing(stream, per_thread))
		launch->count = 0;	/* it becomes a node, and takes nothing yet */
	for (unsigned int i = 0; i < launch->count; i++)
		if (!reserve(&launch->charges[i], &launch->parts[i], exec,
			     stream_key(stream, per_thread))) {
			give_back(launch, i);
			return false;
		}
	return true;
}

static CUresult end(const struct graph_launch *launch, CUresult ret, CUgraphExec exec, uint64_t stream)
{
	for (unsigned int i = 0; i < launch->count; i++) {
		const struct ledger_entry *part = &launch->parts[i];

		account_settle(&launch->charges[i], LEDGER_GRAPHS, (uint64_t)device_of(part));
		if (ret != CUDA_SUCCESS)
			continue;
		remember(stream, part->card, part->bytes);
		if ((part->references & AUTO_FREE) != 0)
			remember((uintptr_t)exec, part->card, part->of);
	}
	if (launch->count > 0)
		accounts_moved();
	return ret;
}

#define UPLOAD(name, per_thread)                                                                  \
	struct graph_launch launch;                                                               \
                                                                                                  \
	if (NESTED)                                                                               \
		return DRIVER(name)(exec, stream);                                                \
	if (!begin(&launch, exec, stream, per_thread))                                            \
		return CUDA_ERROR_OUT_OF_MEMORY;                                                  \
	return end(&launch, CALL(name, exec, stream), exec, stream_key(stream, per_thread))

/* It waits for its share of the time first, while it has reserved nothing. */
#define LAUNCH(name, per_thread)                                                                  \
	struct graph_launch launch;                                                               \
	struct launch timed;                                                                      \
	CUresult ret;                                                                             \
                                                                                                  \
	if (NESTED)                                                                               \
		return DRIVER(name)(exec, stream);                                                \
	gpu_time_begin(&timed, stream, per_thread);                                               \
	if (!begin(&launch, exec, stream, per_thread))                                            \
		return gpu_time_end(&timed, CUDA_ERROR_OUT_OF_MEMORY);                            \
	ret = gpu_time_end(&timed, CALL(name, exec, stream));                                     \
	return end(&launch, ret, exec, stream_key(stream, per_thread))

CUresult EXPORT cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	LAUNCH(cuGraphLaunch, false);
}

CUresult EXPORT cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	LAUNCH(cuGraphLaunch_ptsz, true);
}

CUresult EXPORT cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	UPLOAD(cuGraphUpload, false);
}

CUresult EXPORT cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	UPLOAD(cuGraphUpload_ptsz, true);
}

static CUresult destroy(CUgraphExec exec)
{
	struct graph_launch launch;
	CUresult ret;

	look_up(&launch, exec, true);
	ret = CALL(cuGraphExecDestroy, exec);
	if (ret == CUDA_SUCCESS)
		return ret;
	for (unsigned int i = 0; i < launch.count; i++)
		ledger_put(launch.parts[i]);
	__atomic_add_fetch(&process_own()->executables, launch.count, __ATOMIC_RELEASE);
	return ret;
}

CUresult EXPORT cuGraphExecDestroy(CUgraphExec exec)
{
	return NESTED || process_own() == NULL ? DRIVER(cuGraphExecDestroy)(exec) : destroy(exec);
}

/* The driver may take the memory here already: then it is here that it may not fit. */
static CUresult instantiated(CUresult ret, CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	struct graph_launch launch;
	struct card *full = NULL;

	if (ret != CUDA_SUCCESS || NESTED)
		return ret;
	learn(*out, graph, flags);
	look_up(&launch, *out, false);
	for (unsigned int i = 0; i < launch.count; i++) {
		launch.charges[i] = (struct charge){ charge_indexed_card(launch.parts[i].card), 0, 0 };
		if (!account_settle(&launch.charges[i], LEDGER_GRAPHS,
				    (uint64_t)device_of(&launch.parts[i])))
			full = launch.charges[i].card;
	}
	if (full == NULL)
		return ret;
	destroy(*out);
	*out = NULL;
	account_make_room(full);
	usage_refused(full->index);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult EXPORT cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *node, char *log,
				   size_t bytes)
{
	return instantiated(CALL(cuGraphInstantiate, out, graph, node, log, bytes), out, graph, 0);
}

CUresult EXPORT cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *node, char *log,
				      size_t bytes)
{
	return instantiated(CALL(cuGraphInstantiate_v2, out, graph, node, log, bytes), out, graph, 0);
}

CUresult EXPORT cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	return instantiated(CALL(cuGraphInstantiateWithFlags, out, graph, flags), out, graph, flags);
}

CUresult EXPORT cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph,
					     struct CUgraph_instantiate_params *params)
{
	return instantiated(CALL(cuGraphInstantiateWithParams, out, graph, params), out, graph,
			    params != NULL ? params->flags : 0);
}

CUresult EXPORT cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph graph,
						  struct CUgraph_instantiate_params *params)
{
	return instantiated(CALL(cuGraphInstantiateWithParams_ptsz, out, graph, params), out, graph,
			    params != NULL ? params->flags : 0);
}

/* An executable that became another graph's. */
static CUresult updated(CUresult ret, CUgraphExec exec, CUgraph graph)
{
	struct graph_launch before;
	unsigned int flags;

	if (ret != CUDA_SUCCESS || NESTED || process_own() == NULL)
		return ret;
	look_up(&before, exec, true);
	flags = before.count > 0 ? before.parts[0].references & AUTO_FREE : 0;
	learn(exec, graph, flags);
	return ret;
}

CUresult EXPORT cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, int *result)
{
	return updated(CALL(cuGraphExecUpdate, exec, graph, node, result), exec, graph);
}

CUresult EXPORT cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *result)
{
	return updated(CALL(cuGraphExecUpdate_v2, exec, graph, result), exec, graph);
}

CUresult EXPORT cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult ret = CALL(cuDeviceGraphMemTrim, device);

	if (ret == CUDA_SUCCESS && !NESTED)
		accounts_renew();
	return ret;
}
