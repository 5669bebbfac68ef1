/* gpu_table.c - finds the entries of contexts and streams.
 *
 * The table is part of the process's page: a program could see to it that there is no memory for it when it is
 * needed. */
#include <string.h>

#include "gpu_table.h"

#define GONE (1ull << 63)		/* in a stream's key: it ended, and another may come with its handle */

_Static_assert(sizeof(struct gpu_table) <= GPU_TABLE_BYTES, "there is room for it");

static __thread struct {
	uint64_t context;
	unsigned int epoch;
	struct gpu_context *gpu;
} here __attribute__((tls_model("initial-exec")));

static struct gpu_table *table_of(struct process *own)
{
	return (struct gpu_table *)own->gpu;
}

static unsigned int known(const struct gpu_table *all)
{
	return __atomic_load_n(&all->known, __ATOMIC_ACQUIRE);
}

bool gpu_table_empty(void)
{
	struct process *own = process_own();

	return own == NULL || known(table_of(own)) == 0;
}

/* card NULL: only where it is known. */
static struct gpu_context *entry_of(struct gpu_table *all, uint64_t key, struct card *card)
{
	struct gpu_context *found = NULL;
	unsigned int count;

	mutex_lock(&all->mutex);
	count = known(all);
	for (unsigned int i = 0; i < count; i++) {
		struct gpu_context *gpu = &all->contexts[i];

		if (gpu->key == key || (gpu->key == 0 && found == NULL))
			found = gpu;
		if (gpu->key == key)
			break;
	}
	if (found == NULL && card != NULL && count < GPU_CONTEXTS) {
		found = &all->contexts[count];
		__atomic_store_n(&all->known, count + 1, __ATOMIC_RELEASE);
	}
	/* A context that ended unseen may have had that address, on another card or on one that nobody knew. */
	if (found != NULL && card != NULL && (found->key == 0 || card_index(card) >= 0)) {
		if (found->card != card)	/* others read it without the mutex */
			__atomic_store_n(&found->card, card, __ATOMIC_RELAXED);
		__atomic_store_n(&found->key, key, __ATOMIC_RELEASE);
	}
	if (found != NULL && found->key != key)
		found = NULL;
	mutex_unlock(&all->mutex);
	return found;
}

struct gpu_context *gpu_context_of(CUcontext context, struct card *card)
{
	struct process *own = process_own();
	unsigned int epoch = own != NULL ? __atomic_load_n(&own->epoch, __ATOMIC_ACQUIRE) : 0;
	uint64_t key = (uint64_t)(uintptr_t)context;

	if (own == NULL)
		return NULL;
	if (here.context == key && here.epoch == epoch && here.gpu != NULL && gpu_card_of(here.gpu) == card)
		return here.gpu;
	here.gpu = entry_of(table_of(own), key, card);
	here.context = key;
	here.epoch = epoch;
	return here.gpu;
}

/* An ended or idle stream's entry becomes this one's. */
static struct gpu_stream *replace(struct gpu_context *gpu, uint64_t key)
{
	for (unsigned int i = 0; i < 2 * GPU_STREAMS; i++) {
		struct gpu_stream *stream = &gpu->streams[i % GPU_STREAMS];

		if (i < GPU_STREAMS && __atomic_load_n(&stream->key, __ATOMIC_RELAXED) < GONE)
			continue;
		if (!gpu_segment_claim(&stream->segments[0], SEGMENT_FREE))
			continue;
		if (gpu_segment_claim(&stream->segments[1], SEGMENT_FREE)) {
			__atomic_store_n(&stream->mean, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&stream->pace, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&stream->key, key, __ATOMIC_RELEASE);
			gpu_segment_release(&stream->segments[1], SEGMENT_FREE);
			gpu_segment_release(&stream->segments[0], SEGMENT_FREE);
			return stream;
		}
		gpu_segment_release(&stream->segments[0], SEGMENT_FREE);
	}
	return NULL;
}

struct gpu_stream *gpu_stream_of(struct gpu_context *gpu, CUstream handle, bool make)
{
	uint64_t key = handle == NULL ? (uintptr_t)LEGACY :
		handle == PER_THREAD ? (uintptr_t)&here | 3 : (uintptr_t)handle;
	unsigned int first = (unsigned int)(key * 0x9e3779b97f4a7c15u >> 58);

	for (unsigned int i = 0; i < GPU_STREAMS; i++) {
		struct gpu_stream *stream = &gpu->streams[(first + i) % GPU_STREAMS];
		uint64_t seen = __atomic_load_n(&stream->key, __ATOMIC_ACQUIRE);

		if (seen == key)
			return stream;
		if (seen == 0 && !make)
			return NULL;
		if ((seen == 0 || (make && seen == (key | GONE))) &&
		    __atomic_compare_exchange_n(&stream->key, &seen, key, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return stream;
		if (seen == key)
			return stream;
	}
	return make ? replace(gpu, key) : NULL;
}

struct gpu_stream *gpu_stream_elsewhere(const struct gpu_context *not, CUstream handle, struct gpu_context **of)
{
	struct process *own = process_own();
	struct gpu_table *all = own != NULL ? table_of(own) : NULL;
	unsigned int count = all != NULL && (uintptr_t)handle > LAST_SPECIAL_STREAM ? known(all) : 0;

	for (unsigned int i = 0; i < count; i++) {
		struct gpu_context *gpu = &all->contexts[i];
		struct gpu_stream *found;

		if (gpu == not || __atomic_load_n(&gpu->key, __ATOMIC_ACQUIRE) == 0)
			continue;
		found = gpu_stream_of(gpu, handle, false);
		if (found != NULL) {
			*of = gpu;
			return found;
		}
	}
	return NULL;
}

/* To be asked of a stream with a segment claimed: until that is given back, the handle lives. */
bool gpu_stream_handle(const struct gpu_stream *stream, CUstream *out)
{
	uint64_t key = __atomic_load_n(&stream->key, __ATOMIC_SEQ_CST);

	*out = key == (uintptr_t)LEGACY ? NULL : key == ((uintptr_t)&here | 3) ? PER_THREAD : (CUstream)key;
	return key < GONE && (*out == PER_THREAD || (key & 3) != 3);
}

void gpu_stream_gone(struct gpu_stream *stream)
{
	__atomic_fetch_or(&stream->key, GONE, __ATOMIC_SEQ_CST);
}

struct gpu_context *gpu_table_find(CUcontext context)
{
	struct process *own = process_own();

	if (own == NULL || context == NULL)
		return NULL;
	return entry_of(table_of(own), (uint64_t)(uintptr_t)context, NULL);
}

void gpu_table_forget(CUcontext context)
{
	struct gpu_context *gpu = gpu_table_find(context);
	struct gpu_table *all;

	if (gpu == NULL)
		return;
	all = table_of(process_own());
	gpu_segments_await(gpu);	/* what that thread gives back is charged as lost too */
	gpu_segments_lost(gpu);
	mutex_lock(&all->mutex);
	memset(gpu, 0, sizeof(*gpu));
	mutex_unlock(&all->mutex);
}
