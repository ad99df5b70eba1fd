package main

import (
	"os/exec"
	"time"
)

// A work is a kind of load for one or several servers.
type work struct {
	name    string
	parts   []string // the names of its parts, if it has several rows
	servers []string // "mailstead", dovecot, or kinds of sinks
	needs   string   // another program that it needs; empty: none
	run     func(b *bench, server string) (measured, error)
}

// mailsteadWork returns a work for the program alone.
func mailsteadWork(name string, run func(b *bench) (measured, error)) work {
	return work{name: name, servers: []string{"mailstead"}, run: func(b *bench, _ string) (measured, error) { return run(b) }}
}

// rows returns the names of the work's rows for each server.
func (w work) rows() []string {
	if len(w.parts) == 0 {
		return []string{w.name}
	}
	var names []string
	for _, part := range w.parts {
		names = append(names, w.name+", "+part)
	}
	return names
}

// measured is the result of one run of a work.
type measured struct {
	Ops  int           // operations done
	Wall time.Duration // of the whole run
	CPU  time.Duration // of the server, user and system
	Took []time.Duration

	Parts []measured // one for each part of a work with parts; the other fields are empty then
}

// A bench holds what all works share.
type bench struct {
	server  string        // path of the program
	dir     string        // where servers keep their data
	count   float64       // factor on the number of operations
	limit   time.Duration // of one run of a work
	verbose bool
	bodies  map[string][][]byte // messages by size and signature
	names   *names
	before  []string // a program (with arguments) that starts each server
}

// times returns how often a work repeats its operation, at least once for each of its workers.
func (b *bench) times(n, workers int) int { return max(int(float64(n)*b.count), workers) }

// program returns the path of another program.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}
