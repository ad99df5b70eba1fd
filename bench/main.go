// Command mailstead-bench measures the speed of the built Mailstead from outside. It compares
// Mailstead with Dovecot, if that is installed, and with sinks: minimal servers that speak the same
// protocol and only store or discard what they receive. All servers take turns in one run, because
// only ratios within one run on one machine are meaningful. It prints a table, or with -json a line
// of JSON.
//
// It does not know the packages of Mailstead. All traffic is on loopback.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A tableHeader says when and where a table was measured.
type tableHeader struct {
	Date    time.Time `json:"date"`
	Go      string    `json:"go"` // version of Go
	Cores   int       `json:"cores"`
	Version string    `json:"version"` // version of the measured program
	Rounds  int       `json:"rounds"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "sink" {
		exitOnError(runSink(os.Args[2:]))
		return
	}
	b := &bench{bodies: map[string][][]byte{}}
	only := flag.String("only", "", "run only workloads whose name matches this regular expression")
	rounds := flag.Int("rounds", 5, "number of rounds; each workload runs once in each round with each server")
	asJSON := flag.Bool("json", false, "print one line of JSON in the place of the table")
	draw := flag.Bool("chart", false, "draw lines of costs at several sizes, which make soak-costs prints, from standard input as SVG")
	list := flag.Bool("list", false, "list the workloads")
	flag.StringVar(&b.server, "server", "./mailstead", "the program to be measured")
	flag.StringVar(&b.dir, "dir", "", "where servers keep their data; a temporary directory if empty. The speed of its disk counts")
	flag.Float64Var(&b.count, "count", 1, "factor on the number of operations")
	flag.DurationVar(&b.limit, "limit", 2*time.Minute, "maximum time of one run of a workload")
	flag.BoolVar(&b.verbose, "v", false, "say what is going on")
	flag.Parse()
	if *draw {
		exitOnError(writeChart(os.Stdout, os.Stdin))
		return
	}
	server, err := filepath.Abs(b.server) // servers run in other working directories
	exitOnError(err)
	b.server = server
	all := workloads()
	if *only != "" {
		match, err := regexp.Compile(*only)
		exitOnError(err)
		all = slices.DeleteFunc(all, func(w workload) bool { return !match.MatchString(w.name) })
	}
	if *list {
		for _, w := range all {
			for _, name := range w.rowNames() {
				fmt.Printf("%-52s %s\n", name, strings.Join(w.servers, ", "))
			}
		}
		return
	}
	version, err := exec.Command(b.server, "version").Output()
	exitOnError(err)
	h := tableHeader{time.Now().UTC().Truncate(time.Second), runtime.Version(), runtime.NumCPU(), strings.TrimSpace(string(version)), *rounds}
	rows, err := b.runAll(runnable(all), *rounds)
	exitOnError(err)
	if *asJSON {
		exitOnError(json.NewEncoder(os.Stdout).Encode(struct {
			tableHeader
			Rows []*row `json:"rows"`
		}{h, rows}))
		return
	}
	fmt.Printf("%s, %s, %d cores, %s, medians of %d rounds\n", h.Date.Format(time.DateOnly), h.Version, h.Cores, h.Go, h.Rounds)
	exitOnError(printTable(os.Stdout, rows))
}

// exitOnError ends the process with exit code 1 if err is not nil.
func exitOnError(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "mailstead-bench:", err)
		os.Exit(1)
	}
}

// workloads returns all workloads.
func workloads() []workload {
	return slices.Concat(smtpWorkloads(), relayWorkloads(), imapWorkloads(), apiWorkloads(), visibleWorkloads(), webhookWorkloads(), otherWorkloads())
}

// runnable returns the workloads whose programs are installed, and prints the names of the others.
func runnable(all []workload) (out []workload) {
	for _, w := range all {
		if _, err := programPath(w.needs); w.needs != "" && err != nil {
			fmt.Fprintf(os.Stderr, "%s is left out: %s is not installed\n", w.name, w.needs)
			continue
		}
		if _, err := programPath("dovecot"); slices.Contains(w.servers, dovecot) && err != nil {
			fmt.Fprintf(os.Stderr, "%s at %s is left out: it is not installed\n", w.name, dovecot)
			w.servers = slices.DeleteFunc(slices.Clone(w.servers), func(s string) bool { return s == dovecot })
		}
		out = append(out, w)
	}
	return out
}

// runAll runs each workload once in each round with each of its servers. Every run starts its
// server with an empty directory. It returns a row for each server of a workload; if the workload
// has parts, it returns a row for each part and server.
func (b *bench) runAll(all []workload, rounds int) (rows []*row, err error) {
	if b.dir == "" {
		b.dir, err = os.MkdirTemp("", "mailstead-bench-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(b.dir)
		if err := os.Chmod(b.dir, 0o755); err != nil { // Dovecot runs as another user
			return nil, err
		}
	}
	b.names, err = startDNS()
	if err != nil {
		return nil, err
	}
	defer b.names.close()
	for round := range rounds {
		n := 0
		for _, w := range all {
			for _, server := range w.servers {
				m, err := w.run(b, server)
				parts := m.Parts
				if len(w.parts) == 0 {
					parts = []measurement{m}
				}
				for i, name := range w.rowNames() {
					if err == nil && (i >= len(parts) || parts[i].Ops == 0) {
						err = errors.New("the run has no operations")
					}
					if err != nil {
						return nil, fmt.Errorf("%s at %s: %w", name, server, err)
					}
					if round == 0 {
						rows = append(rows, &row{Work: name, Server: server})
					}
					rows[n].add(parts[i])
					if b.verbose {
						fmt.Fprintf(os.Stderr, "round %d  %s at %s: %d in %s\n", round+1, name, server, parts[i].Ops, parts[i].Wall.Round(time.Millisecond))
					}
					n++
				}
			}
		}
	}
	for _, r := range rows {
		r.Rate, r.CPU, r.P50, r.P99, r.Max = median(r.rates), median(r.cpus), median(r.p50s), median(r.p99s), median(r.maxima)
	}
	return rows, nil
}
