package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// writeChart reads costs of stores of several sizes from r and writes an SVG chart to w. The
// horizontal axis is the number of messages, the vertical axis the cost; both are logarithmic. r
// has a JSON object for each size, with "messages" and with costs whose names end in their unit:
// _ms, _s or _mib. It ignores other values.
func writeChart(w io.Writer, r io.Reader) error {
	panels, sizes, err := readCosts(r)
	if err != nil {
		return err
	}
	if len(sizes) < 2 {
		return errors.New("draw the chart: it needs the costs of at least two sizes")
	}
	_, err = io.WriteString(w, drawSVG(panels, sizes))
	return err
}

// A point is the cost y of a store with x messages.
type point struct{ x, y float64 }

// readCosts parses the input of writeChart. It returns the points by panel and by name of the line,
// and the sizes in order.
func readCosts(r io.Reader) (panels map[string]map[string][]point, sizes []float64, err error) {
	panels = map[string]map[string][]point{"milliseconds": {}, "MiB": {}}
	seen := map[float64]bool{}
	for d := json.NewDecoder(r); ; {
		var costs map[string]float64
		if err := d.Decode(&costs); errors.Is(err, io.EOF) {
			return panels, slices.Sorted(maps.Keys(seen)), nil
		} else if err != nil {
			return nil, nil, fmt.Errorf("read the costs for the chart: %w", err)
		}
		x := costs["messages"]
		if x <= 0 {
			return nil, nil, errors.New(`read the costs for the chart: an object has no "messages"`)
		}
		seen[x] = true
		for name, y := range costs {
			unit := name[strings.LastIndexByte(name, '_')+1:]
			panel, factor := map[string]string{"ms": "milliseconds", "s": "milliseconds", "mib": "MiB"}[unit], 1.0
			if unit == "s" && strings.HasSuffix(name, "_per_s") || panel == "" || y <= 0 {
				continue
			}
			if unit == "s" {
				factor = 1000
			}
			label := strings.ReplaceAll(strings.TrimSuffix(name, "_"+unit), "_", " ")
			panels[panel][label] = append(panels[panel][label], point{x, y * factor})
		}
	}
}

// drawSVG returns the SVG of all panels, one below the other.
func drawSVG(panels map[string]map[string][]point, sizes []float64) string {
	const width, height, left, right, top = 520.0, 420.0, 60.0, 170.0, 30.0
	first, last := math.Log10(sizes[0]), math.Log10(sizes[len(sizes)-1])
	across := func(x float64) float64 { return left + width*(math.Log10(x)-first)/(last-first) }
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", left+width+right, 2*(height+2*top)+10)
	for n, panel := range []string{"milliseconds", "MiB"} {
		low, high := math.Inf(1), math.Inf(-1)
		for _, points := range panels[panel] {
			for _, p := range points {
				low, high = min(low, math.Floor(math.Log10(p.y))), max(high, math.Ceil(math.Log10(p.y)))
			}
		}
		if low >= high {
			continue
		}
		above := float64(n)*(height+2*top) + top
		down := func(y float64) float64 { return above + height*(high-math.Log10(y))/(high-low) }
		fmt.Fprintf(&out, "<text x=\"%.0f\" y=\"%.0f\" fill=\"#222\">%s</text>\n", left, above-10, panel)
		for e := low; e <= high; e++ {
			y := down(math.Pow(10, e))
			fmt.Fprintf(&out, "<path d=\"M%.1f %.1fh%.0f\" stroke=\"#ddd\"/><text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\" fill=\"#555\">%g</text>\n", left, y, width, left-8, y+4, math.Pow(10, e))
		}
		for _, x := range sizes {
			fmt.Fprintf(&out, "<path d=\"M%.1f %.1fv%.0f\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#555\">%.0f messages</text>\n", across(x), above, height, across(x), above+height+16, x)
		}
		colors := []string{"#1f5fbf", "#c2410c", "#15803d", "#7c3aed", "#b91c1c", "#0e7490", "#a16207", "#be185d", "#475569", "#4d7c0f"}
		label := math.Inf(-1) // vertical position of the last label
		lines := slices.Sorted(maps.Keys(panels[panel]))
		slices.SortStableFunc(lines, func(a, b string) int { // by their last value, the largest first
			pa, pb := panels[panel][a], panels[panel][b]
			return int(math.Copysign(1, pb[len(pb)-1].y-pa[len(pa)-1].y))
		})
		for k, name := range lines {
			points, color := panels[panel][name], colors[k%len(colors)]
			slices.SortFunc(points, func(a, b point) int { return int(math.Copysign(1, a.x-b.x)) })
			var path strings.Builder
			for m, p := range points {
				fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(m, 1)], across(p.x), down(p.y))
			}
			end := points[len(points)-1]
			label = max(label+14, down(end.y)+4)
			fmt.Fprintf(&out, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/><text x=\"%.0f\" y=\"%.1f\" fill=\"%s\">%s %.3g</text>\n", path.String(), color, left+width+8, label, color, name, end.y)
		}
	}
	out.WriteString("</svg>\n")
	return out.String()
}
