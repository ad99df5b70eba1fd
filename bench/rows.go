package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// A row is the result of a workload with one server: the medians of all rounds.
type row struct {
	Work   string  `json:"work"` // name of the workload, or of a part of it
	Server string  `json:"server"`
	Rate   float64 `json:"per_second"` // operations
	CPU    float64 `json:"cpu_ms"`     // processor time of the server for one operation
	P50    float64 `json:"p50_ms"`     // median time of an operation
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`

	rates, cpus, p50s, p99s, maxima []float64 // one value for each round
}

// add adds the result of one round.
func (r *row) add(m measurement) {
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

// printTable prints the rows as a table. The last column is the rate of Mailstead divided by that
// of the other server.
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
