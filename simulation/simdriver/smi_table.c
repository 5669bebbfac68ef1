/* smi_table.c - the table that nvidia-smi shows when nothing is asked. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "smi.h"

#define MIB (1024ULL * 1024ULL)
#define WIDE "-----------------------------------------------------------------------------------------"
#define PARTS "-----------------------------------------+------------------------+----------------------"

static const char heads[] =
	"| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
	"| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
	"|                                         |                        |               MIG M. |\n"
	"|=========================================+========================+======================|\n";

static void value(const struct smi_gpu *gpu, const char *name, const char *suffix, char *out,
		  size_t len)
{
	size_t n;
	const struct smi_field *all = smi_gpu_fields(&n);
	char text[160] = "";

	snprintf(out, len, "N/A");
	for (size_t i = 0; i < n; i++)
		if (strcmp(all[i].name, name) == 0 &&
		    all[i].get(gpu, text, sizeof(text)) == NVML_SUCCESS)
			snprintf(out, len, "%s%s", text, suffix);
}

static void head(void)
{
	char driver[80] = "N/A", cuda[16], when[64];
	time_t now = time(NULL);
	int version = 0;

	smi_nvml()->driver(driver, sizeof(driver));
	smi_nvml()->cuda(&version);
	snprintf(cuda, sizeof(cuda), "%d.%d", version / 1000, version % 1000 / 10);
	strftime(when, sizeof(when), "%a %b %e %H:%M:%S %Y", localtime(&now));
	printf("%s       \n+" WIDE "+\n", when);
	printf("| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |\n", driver, driver,
	       cuda);
	printf("|" PARTS "+\n%s", heads);
}

static void row(const struct smi_gpu *gpu)
{
	char name[160], on[16], bus[40], display[16], fan[16], heat[16], perf[16], draw[24], cap[24];
	char used[24], total[24], util[16], mode[24], mig[16];

	value(gpu, "name", "", name, sizeof(name));
	value(gpu, "persistence_mode", "", on, sizeof(on));
	value(gpu, "pci.bus_id", "", bus, sizeof(bus));
	value(gpu, "display_active", "", display, sizeof(display));
	printf("| %3u  %-26.26s %6s  | %18s %3s | %20s |\n", gpu->index, name,
	       on[0] == 'E' ? "On" : "Off", bus, display[0] == 'E' ? "On" : "Off", "N/A");
	value(gpu, "fan.speed", "%", fan, sizeof(fan));
	value(gpu, "temperature.gpu", "C", heat, sizeof(heat));
	value(gpu, "pstate", "", perf, sizeof(perf));
	value(gpu, "power.draw", "", draw, sizeof(draw));
	value(gpu, "power.limit", "", cap, sizeof(cap));
	value(gpu, "memory.used", "MiB", used, sizeof(used));
	value(gpu, "memory.total", "MiB", total, sizeof(total));
	value(gpu, "utilization.gpu", "%", util, sizeof(util));
	value(gpu, "compute_mode", "", mode, sizeof(mode));
	printf("| %3s  %4s   %-5s   %11.*sW /%4.*sW | %9s / %10s | %7s %12.12s |\n", fan, heat, perf,
	       (int)strcspn(draw, "."), draw, (int)strcspn(cap, "."), cap, used, total, util, mode);
	value(gpu, "mig.mode.current", "", mig, sizeof(mig));
	printf("| %39s | %22s | %20s |\n+" PARTS "+\n", "", "", mig);
}

static void mig_rows(const struct smi_gpu *gpu)
{
	unsigned int max = 0, gi = 0, ci = 0;
	nvmlDevice_t mig;

	if (!smi_mig_on(gpu->dev) || smi_nvml()->mig_max(gpu->dev, &max) != NVML_SUCCESS)
		return;
	for (unsigned int i = 0; i < max; i++) {
		struct nvml_memory mem = { 0, 0, 0 };
		char profile[64] = "";

		if (smi_nvml()->mig_at(gpu->dev, i, &mig) != NVML_SUCCESS)
			continue;
		smi_nvml()->gi(mig, &gi);
		smi_nvml()->ci(mig, &ci);
		smi_nvml()->memory(mig, &mem);
		smi_profile(mig, profile, sizeof(profile));
		printf("| %3u %4u %4u %4u  %-20s %10lluMiB / %6lluMiB %20s |\n", gpu->index, gi, ci, i,
		       profile, mem.used / MIB, mem.total / MIB, "");
	}
}

static bool any_mig(const struct smi_gpus *gpus)
{
	for (unsigned int i = 0; i < gpus->n; i++)
		if (smi_mig_on(gpus->at[i].dev))
			return true;
	return false;
}

static void migs(const struct smi_gpus *gpus)
{
	if (!any_mig(gpus))
		return;
	printf("\n+" WIDE "+\n| %-87s |\n| %-87s |\n|" WIDE "|\n", "MIG devices:",
	       " GPU   GI   CI  MIG  Profile                     Memory-Usage");
	for (unsigned int i = 0; i < gpus->n; i++)
		mig_rows(&gpus->at[i]);
	printf("+" WIDE "+\n");
}

static void instance(unsigned int id, char *out, size_t len)
{
	if (id == NVML_NO_INSTANCE)
		snprintf(out, len, "N/A");
	else
		snprintf(out, len, "%u", id);
}

static unsigned int processes_of(const struct smi_gpu *gpu)
{
	static struct nvml_process list[512];
	unsigned int n = smi_processes(gpu->dev, list, 512);

	for (unsigned int i = 0; i < n; i++) {
		char name[256], gi[16], ci[16];

		smi_process_name(list[i].pid, name, sizeof(name));
		instance(list[i].gi, gi, sizeof(gi));
		instance(list[i].ci, ci, sizeof(ci));
		printf("| %4u  %4s %4s %10u %6s   %-40.40s %7lluMiB |\n", gpu->index, gi, ci,
		       list[i].pid, "C", name, list[i].used / MIB);
	}
	return n;
}

int smi_table(const struct smi_gpus *gpus)
{
	unsigned int n = 0;

	head();
	for (unsigned int i = 0; i < gpus->n; i++)
		row(&gpus->at[i]);
	migs(gpus);
	printf("%91s\n+" WIDE "+\n| %-87s |\n", "", "Processes:");
	printf("|  GPU   GI   CI        PID   Type   Process name                              "
	       "GPU Memory |\n|        ID   ID                                               "
	       "                Usage      |\n|");
	for (size_t i = 0; i < sizeof(WIDE) - 1; i++)
		putchar('=');
	puts("|");
	for (unsigned int i = 0; i < gpus->n; i++)
		n += processes_of(&gpus->at[i]);
	if (n == 0)
		printf("|  %-86s |\n", "No running processes found");
	printf("+" WIDE "+\n");
	return SMI_OK;
}
