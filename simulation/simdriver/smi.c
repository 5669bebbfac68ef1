/* smi.c - a small nvidia-smi: what was asked, and the statuses and texts of the real one. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "smi.h"

struct asked {
	bool help, list, version, help_query;
	const char *id;
	char *gpu_fields, *app_fields, *format;
};

static const char help[] =
	"NVIDIA System Management Interface\n\n"
	"nvidia-smi [OPTION1 [ARG1]] [OPTION2 [ARG2]] ...\n\n"
	"    -h,   --help                Print usage information and exit.\n"
	"    --version                   Print version information and exit.\n"
	"    -L,   --list-gpus           Display a list of GPUs connected to the system.\n"
	"    -i,   --id=                 Target a specific GPU: index, UUID or PCI bus id.\n"
	"    --query-gpu=                Information about GPU. See --help-query-gpu.\n"
	"    --query-compute-apps=       List of currently active compute processes.\n"
	"    --format=                   csv[,noheader][,nounits]\n"
	"    --help-query-gpu            List the fields of --query-gpu.\n";

static int invalid(void)
{
	puts("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
	return SMI_BAD_ARGUMENT;
}

/* --option=value; NULL when it is another option. */
static char *after(char *arg, const char *option)
{
	size_t len = strlen(option);

	return strncmp(arg, option, len) == 0 ? arg + len : NULL;
}

static bool is(const char *arg, const char *brief, const char *full)
{
	return strcmp(arg, brief) == 0 || strcmp(arg, full) == 0;
}

static bool read_value(struct asked *asked, char *arg)
{
	char *value;

	if ((value = after(arg, "--query-gpu=")) != NULL)
		asked->gpu_fields = value;
	else if ((value = after(arg, "--query-compute-apps=")) != NULL)
		asked->app_fields = value;
	else if ((value = after(arg, "--format=")) != NULL)
		asked->format = value;
	else if ((value = after(arg, "--id=")) != NULL)
		asked->id = value;
	return value != NULL;
}

static bool read_args(struct asked *asked, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (is(argv[i], "-h", "--help"))
			asked->help = true;
		else if (is(argv[i], "-L", "--list-gpus"))
			asked->list = true;
		else if (strcmp(argv[i], "--version") == 0)
			asked->version = true;
		else if (strcmp(argv[i], "--help-query-gpu") == 0)
			asked->help_query = true;
		else if (is(argv[i], "-i", "--id") && i + 1 < argc)
			asked->id = argv[++i];
		else if (!read_value(asked, argv[i]))
			return false;
	}
	return true;
}

static bool read_format(char *format, struct smi_csv *csv)
{
	bool is_csv = false;
	char *word;

	while ((word = strsep(&format, ",")) != NULL) {
		if (strcmp(word, "csv") == 0)
			is_csv = true;
		else if (strcmp(word, "noheader") == 0)
			csv->noheader = true;
		else if (strcmp(word, "nounits") == 0)
			csv->nounits = true;
		else
			return false;
	}
	return is_csv;
}

static int show_fields(void)
{
	size_t n;
	const struct smi_field *fields = smi_gpu_fields(&n);

	for (size_t i = 0; i < n; i++)
		if (fields[i].alias != NULL)
			printf("\"%s\" or \"%s\"\n", fields[i].name, fields[i].alias);
		else
			printf("\"%s\"\n", fields[i].name);
	return SMI_OK;
}

static int answer(const struct asked *asked, struct smi_csv csv)
{
	struct smi_gpus gpus;
	int ret = smi_gpus(asked->id, &gpus);

	if (ret != SMI_OK)
		return ret;
	if (gpus.n == 0) {
		puts(asked->list ? "No devices found." : "No devices were found");
		return SMI_NO_DEVICE;
	}
	if (asked->list)
		return smi_list(&gpus);
	if (asked->gpu_fields != NULL)
		return smi_query_gpu(&gpus, asked->gpu_fields, csv);
	if (asked->app_fields != NULL)
		return smi_query_apps(&gpus, asked->app_fields, csv);
	return smi_table(&gpus);
}

int main(int argc, char **argv)
{
	struct asked asked = { 0 };
	struct smi_csv csv = { false, false };
	bool query;
	int ret;

	if (!read_args(&asked, argc, argv))
		return invalid();
	if (asked.help)
		return fputs(help, stdout) < 0 ? SMI_OTHER : SMI_OK;
	if (asked.help_query)
		return show_fields();
	query = asked.gpu_fields != NULL || asked.app_fields != NULL;
	if ((asked.gpu_fields != NULL && asked.app_fields != NULL) || (asked.list && query))
		return invalid();
	if (query && asked.format == NULL) {
		puts("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.");
		return SMI_BAD_ARGUMENT;
	}
	if (asked.format != NULL && (!query || !read_format(asked.format, &csv)))
		return invalid();
	ret = smi_start();
	if (ret != SMI_OK)
		return ret;
	return asked.version ? smi_version() : answer(&asked, csv);
}
