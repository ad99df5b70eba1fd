package main

import (
	"os/exec"
	"time"
)

// A workload is a kind of work, such as receiving mail, with the servers whose speed at it is
// measured.
type workload struct {
	name    string
	parts   []string // names of the parts, each with its own row; nil for a single row
	servers []string // "mailstead", dovecot, or kinds of sinks
	needs   string   // another program that the workload needs; "" for none
	run     func(b *bench, server string) (measurement, error)
}

// mailsteadWorkload returns a workload with Mailstead as its only server.
func mailsteadWorkload(name string, run func(b *bench) (measurement, error)) workload {
	return workload{name: name, servers: []string{"mailstead"}, run: func(b *bench, _ string) (measurement, error) { return run(b) }}
}

// rowNames returns the names of the rows that the workload has for each server.
func (w workload) rowNames() []string {
	if len(w.parts) == 0 {
		return []string{w.name}
	}
	var names []string
	for _, part := range w.parts {
		names = append(names, w.name+", "+part)
	}
	return names
}

// measurement is the result of one run of a workload.
type measurement struct {
	Ops  int             // number of operations
	Wall time.Duration   // elapsed time of the run
	CPU  time.Duration   // user and system time of the server
	Took []time.Duration // times of the operations

	Parts []measurement // results of the parts; if there are parts, the other fields are not set
}

// A bench has the options of the command, and what the workloads share.
type bench struct {
	server   string        // path of the measured program
	dir      string        // directory for the data of servers
	count    float64       // factor on the number of operations
	limit    time.Duration // maximum time of one run
	verbose  bool
	bodies   map[string][][]byte // the results of method messages, by its arguments
	names    *dnsServer          // the DNS server
	launcher []string            // a program, with arguments, that starts each server; nil for none
}

// scaled returns n times b.count, but at least workers.
func (b *bench) scaled(n, workers int) int { return max(int(float64(n)*b.count), workers) }

// programPath returns the path of an installed program. It also looks in /usr/sbin.
func programPath(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}
