/* cuda_checkpoint.c - processes that are locked, checkpointed and restored, each by any that sees it.
 *
 * What a process has of its cards is put aside whole, and comes back whole or not at all. */
#include "cuda_core.h"

/* The process goes from one state to the next. */
static CUresult go(const char *call, int pid, enum sim_process from, enum sim_process to)
{
	CUresult ret = cu_enter_locked(call);
	int state;

	if (ret != CUDA_SUCCESS)
		return ret;
	sim_lock();
	state = sim_process(pid);
	if (state == (int)from)
		sim_process_set(pid, to);
	sim_unlock();
	if (state < 0)
		return CUDA_ERROR_INVALID_VALUE;
	return state == (int)from ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

SIM_API CUresult cuCheckpointProcessLock(int pid, void *args)
{
	(void)args;
	return go(__func__, pid, SIM_RUNNING, SIM_LOCKED);
}

SIM_API CUresult cuCheckpointProcessUnlock(int pid, void *args)
{
	(void)args;
	return go(__func__, pid, SIM_LOCKED, SIM_RUNNING);
}

SIM_API CUresult cuCheckpointProcessCheckpoint(int pid, void *args)
{
	(void)args;
	return go(__func__, pid, SIM_LOCKED, SIM_CHECKPOINTED);
}

/* With the lock. */
static bool fits(int pid)
{
	const struct cu_dev *dev;

	for (int i = 0; (dev = cu_dev_at(i)) != NULL; i++)
		if (sim_used(dev->entry) + sim_process_bytes(pid, dev->entry) > dev->limit)
			return false;
	return true;
}

SIM_API CUresult cuCheckpointProcessRestore(int pid, void *args)
{
	CUresult ret = cu_enter_locked(__func__);
	(void)args;

	if (ret != CUDA_SUCCESS)
		return ret;
	sim_lock();
	if (sim_process(pid) < 0)
		ret = CUDA_ERROR_INVALID_VALUE;
	else if (sim_process(pid) != SIM_CHECKPOINTED)
		ret = CUDA_ERROR_ILLEGAL_STATE;
	else if (!fits(pid))
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	else
		sim_process_set(pid, SIM_LOCKED);
	sim_unlock();
	return ret;
}

SIM_API CUresult cuCheckpointProcessGetState(int pid, int *out)
{
	CUresult ret = cu_enter_locked(__func__);
	int state;

	if (ret != CUDA_SUCCESS)
		return ret;
	sim_lock();
	state = sim_process(pid);
	sim_unlock();
	if (state < 0 || out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*out = state;
	return CUDA_SUCCESS;
}
