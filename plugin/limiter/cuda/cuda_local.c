/* cuda_local.c - local memory: what each thread of a kernel has beyond its registers.
 *
 * The driver has it for all threads that the card can run at once, as much for each as the kernel needs that needs most of
 * those that were launched in the context, and it keeps it (CU_CTX_LMEM_RESIZE_TO_MAX, which is always on now). What the
 * first stack takes is part of the context. So what counts is what is above the stack, from the first launch on.
 * Functions that were enumerated, and kernels of graphs that were not captured, count by NVML's list. */
#include "local.h"
#include "setting.h"

#define LOCAL_BYTES 3			/* CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES */
#define LEAST_STACK 1024		/* what no context has less of */
#define LOCAL_KEY 7			/* from a context's address on; those before are cuCtxSetLimit's */

static void remember(const void *handle, CUresult ret, int bytes)
{
	struct process *own = process_own();
	struct ledger_entry entry = { .key = (uintptr_t)handle, .kind = LEDGER_LOCAL, .card = -1,
				      .bytes = ret == CUDA_SUCCESS && bytes > 0 ? (uint64_t)bytes : 0 }, before;

	if (own == NULL || (entry.bytes <= LEAST_STACK && !__atomic_load_n(&own->locals, __ATOMIC_RELAXED)))
		return;
	ledger_take(LEDGER_LOCAL, entry.key, &before);	/* of another one, that had the address before */
	if (entry.bytes > LEAST_STACK && ledger_put(entry))
		__atomic_store_n(&own->locals, true, __ATOMIC_RELAXED);
}

void local_function(void *function)
{
	int bytes = 0, mode = CU_CAPTURE_RELAXED;
	CUresult ret;

	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	ret = CALL(cuFuncGetAttribute, &bytes, LOCAL_BYTES, function);
	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	remember(function, ret, bytes);
}

/* Of the current context's device: kernels of one library may need more on another one. */
void local_kernel(CUkernel kernel)
{
	int bytes = 0, mode = CU_CAPTURE_RELAXED;
	CUdevice device;
	CUresult ret;

	if (CALL(cuCtxGetDevice, &device) != CUDA_SUCCESS)
		return;
	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	ret = CALL(cuKernelGetAttribute, &bytes, LOCAL_BYTES, kernel, device);
	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	remember(kernel, ret, bytes);
}

/* Another thread may have counted some of it meanwhile: the larger figure stays. */
static void settle(const struct charge *charge, uint64_t wanted)
{
	struct ledger_entry entry = { .key = charge->context + LOCAL_KEY, .of = charge->context, .kind = LEDGER_SETTING,
				      .card = (int16_t)card_index(charge->card) }, before;
	uint64_t known = ledger_take(LEDGER_SETTING, entry.key, &before) ? before.bytes : 0;

	entry.bytes = known > wanted ? known : wanted;
	usage_release(entry.card, known + charge->bytes - entry.bytes);
	ledger_put(entry);
}

static __attribute__((noinline, cold)) CUresult reserve(uint64_t bytes)
{
	struct ledger_entry known = { .bytes = 0 };
	CUcontext context = NULL;
	struct card *card = charge_current_card(&context);
	struct charge charge;
	uint64_t wanted;
	size_t stack;

	if (card == NULL || CALL(cuCtxGetLimit, &stack, CU_LIMIT_STACK) != CUDA_SUCCESS || bytes <= stack)
		return CUDA_SUCCESS;
	wanted = setting_of_threads(bytes - stack);
	ledger_get(LEDGER_SETTING, (uintptr_t)context + LOCAL_KEY, &known);
	if (wanted <= known.bytes)
		return CUDA_SUCCESS;
	if (!charge_card(&charge, card, wanted - known.bytes))
		return charge.why;
	charge.context = (uintptr_t)context;
	settle(&charge, wanted);
	return CUDA_SUCCESS;
}

CUresult local_launch(const void *function)
{
	struct process *own = process_own();
	struct ledger_entry entry;

	if (own == NULL || __builtin_expect(!__atomic_load_n(&own->locals, __ATOMIC_RELAXED), 1) ||
	    !ledger_get(LEDGER_LOCAL, (uintptr_t)function, &entry))
		return CUDA_SUCCESS;
	return reserve(entry.bytes);
}
