/* user_namespace.c - runs a program as root of a user namespace with 65 536 ids of the machine that nobody has, as kubelet
 * gives them to a pod with hostUsers: false: `user_namespace PROGRAM ARGUMENT...`. Exit status: the program's; 77: this
 * machine makes no such namespace. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAP "0 1073741824 65536"
#define NONE 77

static bool map_ids(pid_t child, const char *name)
{
	char path[64];
	int file;
	bool done;

	snprintf(path, sizeof(path), "/proc/%d/%s", child, name);
	file = open(path, O_WRONLY | O_CLOEXEC);
	done = file >= 0 && write(file, MAP, strlen(MAP)) == (ssize_t)strlen(MAP);
	close(file);
	return done;
}

static void run(char **command, int made, int mapped)
{
	char byte = 0;

	if (unshare(CLONE_NEWUSER) != 0 || write(made, &byte, 1) != 1 || read(mapped, &byte, 1) != 1)
		_exit(NONE);
	if (setgroups(0, NULL) != 0 || setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0)
		_exit(2);
	execv(command[0], command);
	perror(command[0]);
	_exit(2);
}

int main(int argc, char **argv)
{
	int made[2], mapped[2], status;
	char byte;
	pid_t child;

	if (argc < 2 || pipe2(made, O_CLOEXEC) != 0 || pipe2(mapped, O_CLOEXEC) != 0)
		return 2;
	child = fork();
	if (child == 0) {
		close(made[0]);
		close(mapped[1]);
		run(argv + 1, made[1], mapped[0]);
	}
	close(made[1]);
	if (read(made[0], &byte, 1) == 1 && map_ids(child, "uid_map") && map_ids(child, "gid_map") &&
	    write(mapped[1], &byte, 1) != 1)
		return 2;
	close(mapped[1]);
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}
