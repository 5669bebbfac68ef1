/* driver_opener.c - a container's program, built against musl: says whether it can open the driver, and waits. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	puts(driver != NULL ? "opened" : dlerror());
	fflush(stdout);
	for (;;)
		pause();
}
