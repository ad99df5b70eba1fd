package metrics

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// AddProcess adds metrics about this process, with the names that Prometheus's client libraries
// use. started is the start time of the process. Without /proc, memory and open files are left out.
func (r *Registry) AddProcess(started time.Time) {
	one := func(name, help string, value func() (float64, bool)) {
		r.Gauge(name, help, nil, func(emit func(float64, ...string)) {
			if v, ok := value(); ok {
				emit(v)
			}
		})
	}
	one("go_goroutines", "Goroutines that exist.", func() (float64, bool) { return float64(runtime.NumGoroutine()), true })
	one("go_memstats_heap_alloc_bytes", "Bytes of the heap that are in use.", func() (float64, bool) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc), true
	})
	one("process_resident_memory_bytes", "Memory of the process that is in RAM.", func() (float64, bool) {
		text, err := os.ReadFile("/proc/self/statm")
		fields := bytes.Fields(text)
		if err != nil || len(fields) < 2 {
			return 0, false
		}
		pages, err := strconv.ParseFloat(string(fields[1]), 64)
		return pages * float64(os.Getpagesize()), err == nil
	})
	r.CounterFunc("process_cpu_seconds_total", "Processor time of the process, of user and system.", nil, func(emit func(float64, ...string)) {
		var used syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
			emit((time.Duration(used.Utime.Nano()) + time.Duration(used.Stime.Nano())).Seconds())
		}
	})
	one("process_open_fds", "Open file descriptors.", func() (float64, bool) {
		dir, err := os.Open("/proc/self/fd")
		if err != nil {
			return 0, false
		}
		defer dir.Close()
		names, err := dir.Readdirnames(-1)
		return float64(len(names) - 1), err == nil // dir itself does not count
	})
	one("process_start_time_seconds", "When the process was started, in Unix time.", func() (float64, bool) {
		return float64(started.UnixMilli()) / 1000, true
	})
}
