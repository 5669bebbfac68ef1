/* smi_query.c - nvidia-smi --query-gpu=... --format=csv. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "smi.h"

#define FIELDS_MAX 64

int smi_bad_field(const char *name)
{
	printf("Field \"%s\" is not a valid field to query.\n\n", name);
	return SMI_BAD_ARGUMENT;
}

static const struct smi_field *find(const char *name)
{
	size_t n;
	const struct smi_field *fields = smi_gpu_fields(&n);

	for (size_t i = 0; i < n; i++)
		if (strcmp(fields[i].name, name) == 0 ||
		    (fields[i].alias != NULL && strcmp(fields[i].alias, name) == 0))
			return &fields[i];
	return NULL;
}

static void print_header(const struct smi_field *const *picked, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		printf("%s%s", i > 0 ? ", " : "", picked[i]->name);
		if (picked[i]->unit != NULL)
			printf(" [%s]", picked[i]->unit);
	}
	putchar('\n');
}

static void print_row(const struct smi_gpu *gpu, const struct smi_field *const *picked, size_t n,
		      bool units)
{
	for (size_t i = 0; i < n; i++) {
		char value[256] = "";
		nvmlReturn_t status = picked[i]->get(gpu, value, sizeof(value));

		printf("%s%s", i > 0 ? ", " : "",
		       status == NVML_SUCCESS ? value : smi_missing(status));
		if (status == NVML_SUCCESS && units && picked[i]->unit != NULL)
			printf(" %s", picked[i]->unit);
	}
	putchar('\n');
}

int smi_query_gpu(const struct smi_gpus *gpus, char *fields, struct smi_csv csv)
{
	const struct smi_field *picked[FIELDS_MAX];
	size_t n = 0;
	char *word;

	while ((word = strsep(&fields, ",")) != NULL && n < FIELDS_MAX) {
		word += strspn(word, " ");
		picked[n] = find(word);
		if (picked[n++] == NULL)
			return smi_bad_field(word);
	}
	if (!csv.noheader)
		print_header(picked, n);
	for (unsigned int i = 0; i < gpus->n; i++)
		print_row(&gpus->at[i], picked, n, !csv.nounits);
	return SMI_OK;
}
