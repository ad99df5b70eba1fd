// Command mailstead-bench measures the built program from outside, side by side with sinks, which
// are servers that speak the same protocol and do only the named storage, and with Dovecot if that
// is installed. All servers take turns in one run, since only ratios within one run on one machine
// are meaningful. It prints a table, or with -json a line of JSON.
//
// It knows nothing of the program's packages. All traffic is on loopback, and is limited in count
// and time.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
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

// A row is the result of a work at a server: the medians of all rounds.
type row struct {
	Work   string  `json:"work"`
	Server string  `json:"server"`
	Rate   float64 `json:"per_second"`
	CPU    float64 `json:"cpu_ms"` // for one operation
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`

	rates, cpus, p50s, p99s, maxima []float64
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

// A header says when and where a table was measured.
type header struct {
	Date    time.Time `json:"date"`
	Go      string    `json:"go"`
	Cores   int       `json:"cores"`
	Version string    `json:"version"` // of the measured program
	Rounds  int       `json:"rounds"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "sink" {
		exitOn(runSink(os.Args[2:]))
		return
	}
	b := &bench{bodies: map[string][][]byte{}}
	only := flag.String("only", "", "run only works whose name matches this regular expression")
	rounds := flag.Int("rounds", 5, "rounds; each work runs once at each server in each")
	asJSON := flag.Bool("json", false, "print one line of JSON in the place of the table")
	draw := flag.Bool("chart", false, "draw lines of costs at several sizes, which make soak-costs prints, from standard input as SVG")
	list := flag.Bool("list", false, "list the works")
	flag.StringVar(&b.server, "server", "./mailstead", "the program to be measured")
	flag.StringVar(&b.dir, "dir", "", "where servers keep their data; a temporary directory if empty. The speed of its disk counts")
	flag.Float64Var(&b.count, "count", 1, "factor on the number of operations")
	flag.DurationVar(&b.limit, "limit", 2*time.Minute, "end of one run of one work")
	flag.BoolVar(&b.verbose, "v", false, "say what is going on")
	flag.Parse()
	if *draw {
		exitOn(chart(os.Stdout, os.Stdin))
		return
	}
	server, err := filepath.Abs(b.server) // servers run in other working directories
	exitOn(err)
	b.server = server
	all := works()
	if *only != "" {
		match, err := regexp.Compile(*only)
		exitOn(err)
		all = slices.DeleteFunc(all, func(w work) bool { return !match.MatchString(w.name) })
	}
	if *list {
		for _, w := range all {
			for _, name := range w.rows() {
				fmt.Printf("%-52s %s\n", name, strings.Join(w.servers, ", "))
			}
		}
		return
	}
	version, err := exec.Command(b.server, "version").Output()
	exitOn(err)
	h := header{time.Now().UTC().Truncate(time.Second), runtime.Version(), runtime.NumCPU(), strings.TrimSpace(string(version)), *rounds}
	rows, err := b.runAll(runnable(all), *rounds)
	exitOn(err)
	if *asJSON {
		exitOn(json.NewEncoder(os.Stdout).Encode(struct {
			header
			Rows []*row `json:"rows"`
		}{h, rows}))
		return
	}
	fmt.Printf("%s, %s, %d cores, %s, medians of %d rounds\n", h.Date.Format(time.DateOnly), h.Version, h.Cores, h.Go, h.Rounds)
	exitOn(printTable(os.Stdout, rows))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "mailstead-bench:", err)
		os.Exit(1)
	}
}

// works lists all works.
func works() []work {
	return slices.Concat(smtpWorks(), relayWorks(), imapWorks(), apiWorks(), visibleWorks(), webhookWorks(), otherWorks())
}

// runnable drops the works that need a program that is not installed, and says so.
func runnable(all []work) (out []work) {
	for _, w := range all {
		if _, err := program(w.needs); w.needs != "" && err != nil {
			fmt.Fprintf(os.Stderr, "%s is left out: %s is not installed\n", w.name, w.needs)
			continue
		}
		if _, err := program("dovecot"); slices.Contains(w.servers, dovecot) && err != nil {
			fmt.Fprintf(os.Stderr, "%s at %s is left out: it is not installed\n", w.name, dovecot)
			w.servers = slices.DeleteFunc(slices.Clone(w.servers), func(s string) bool { return s == dovecot })
		}
		out = append(out, w)
	}
	return out
}

// program returns the path of another program.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}

// runAll runs each work at each of its servers, round by round, each in an empty directory.
func (b *bench) runAll(all []work, rounds int) (rows []*row, err error) {
	if b.dir == "" {
		b.dir, err = os.MkdirTemp("", "mailstead-bench-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(b.dir)
		if err := os.Chmod(b.dir, 0o755); err != nil { // Dovecot runs as other users
			return nil, err
		}
	}
	b.names, err = serveNames()
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
					parts = []measured{m}
				}
				for i, name := range w.rows() {
					if err == nil && (i >= len(parts) || parts[i].Ops == 0) {
						err = errors.New("nothing was done")
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

func (r *row) add(m measured) {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	r.rates = append(r.rates, float64(m.Ops)/m.Wall.Seconds())
	r.cpus = append(r.cpus, ms(m.CPU)/float64(m.Ops))
	if slices.Sort(m.Took); len(m.Took) > 0 {
		r.p50s = append(r.p50s, ms(m.Took[len(m.Took)/2]))
		r.p99s = append(r.p99s, ms(m.Took[len(m.Took)*99/100]))
		r.maxima = append(r.maxima, ms(m.Took[len(m.Took)-1]))
	}
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// printTable prints the rows, each with its ratio to the same work at the other servers.
func printTable(w io.Writer, rows []*row) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "work\tserver\ta second\tCPU ms\tp50 ms\tp99 ms\tmax ms\tmailstead to it\t")
	for _, r := range rows {
		ratio := ""
		for _, other := range rows {
			if other.Work == r.Work && other.Server == "mailstead" && r.Server != "mailstead" && r.Rate > 0 {
				ratio = fmt.Sprintf("%.2f", other.Rate/r.Rate)
			}
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%.3f\t%.2f\t%.2f\t%.1f\t%s\t\n", r.Work, r.Server, formatRate(r.Rate), r.CPU, r.P50, r.P99, r.Max, cmp.Or(ratio, "–"))
	}
	return out.Flush()
}

func formatRate(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// times returns how often a work repeats its operation, at least once for each of its workers.
func (b *bench) times(n, workers int) int { return max(int(float64(n)*b.count), workers) }
