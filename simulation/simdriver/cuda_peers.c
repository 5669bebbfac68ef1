/* cuda_peers.c - cards that reach each other's memory: all of them do. */
#include "cuda_objects.h"

SIM_API CUresult cuDeviceCanAccessPeer(int *out, CUdevice index, CUdevice peer)
{
	struct cu_dev *dev;
	CUresult ret = cu_enter_dev(__func__, index, &dev);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (cu_dev_at(peer) == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = index != peer && dev->mig == NULL && cu_dev_at(peer)->mig == NULL;
	return CUDA_SUCCESS;
}

/* The lock is held. Bit n: the context reaches the memory of device n. */
static CUresult change(CUcontext ctx, CUcontext peer, bool on)
{
	unsigned int bit;

	if (!cu_lives(peer) || peer->dev == ctx->dev)
		return peer != NULL && cu_lives(peer) ? CUDA_ERROR_INVALID_DEVICE :
			CUDA_ERROR_INVALID_CONTEXT;
	bit = 1U << cu_dev_index(peer->dev);
	if (((ctx->peers & bit) != 0) == on)
		return on ? CUDA_ERROR_PEER_ALREADY_ENABLED : CUDA_ERROR_PEER_NOT_ENABLED;
	ctx->peers ^= bit;
	return CUDA_SUCCESS;
}

SIM_API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	cu_lock();
	ret = change(ctx, peer, true);
	cu_unlock();
	return ret;
}

SIM_API CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	CUcontext ctx;
	CUresult ret = cu_enter_ctx(__func__, &ctx);

	if (ret != CUDA_SUCCESS)
		return ret;
	cu_lock();
	ret = change(ctx, peer, false);
	cu_unlock();
	return ret;
}
