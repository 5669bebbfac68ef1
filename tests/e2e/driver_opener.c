/* driver_opener.c - a container's program: says whether it can open the driver, and waits; given a word, it ends. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	puts(driver != NULL ? "opened" : dlerror());
	fflush(stdout);
	(void)words;
	while (count < 2)
		pause();
	return 0;
}
