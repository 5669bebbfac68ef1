/* cuda_mps.c - the process as a client of the simulated MPS: it connects when it is initialised. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cuda_core.h"

#define DEFAULT_PIPE "/tmp/nvidia-mps"
#define PER_CONTEXT "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"

static int server = -1;			/* open for as long as the process lives */

static const char *variable(const char *name, const char *fallback)
{
	const char *text = getenv(name);

	return text != NULL && *text != '\0' ? text : fallback;
}

/* With PER_CONTEXT a context may have up to all multiprocessors: nothing is asked for the process. */
static const char *percentage(void)
{
	return *variable(PER_CONTEXT, "0") == '1' ? "100" : variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100");
}

void cu_mps_connect(void)
{
	const char *pipe = variable("CUDA_MPS_PIPE_DIRECTORY", DEFAULT_PIPE);
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int len = snprintf(at.sun_path, sizeof(at.sun_path), "%s/control", pipe);
	int fd;

	if (server >= 0 || len < 0 || (size_t)len >= sizeof(at.sun_path))
		return;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
	    dprintf(fd, "client %s\n", percentage()) < 0) {
		close(fd);
		return;
	}
	server = fd;
}

bool cu_mps_client(void)
{
	return server >= 0;
}
