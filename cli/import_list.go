package cli

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/config"
)

// lineName names a line of a CSV file in errors: "FILE line N".
func lineName(list string, line int) string { return fmt.Sprintf("%s line %d", list, line) }

// readCSV reads a CSV file whose first line must be header, or header + optionalColumns. For each
// further line it calls row with the line's number and fields. If the line is invalid, bad says
// why. Lines are parsed one by one, so that an unclosed quote affects only its own line.
func readCSV(path, header, optionalColumns string, row func(line int, fields []string, bad error)) error {
	f, err := os.Open(path)
	if err != nil {
		return config.Mistake(err)
	}
	defer f.Close()
	if isDir(path) {
		return config.Mistake(fmt.Errorf("%s is a directory: name a CSV file", path))
	}
	lines := bufio.NewReader(f)
	columns := strings.Count(header, ",") + 1
	for line, goesOn := 1, true; goesOn; line++ {
		text, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return config.Mistake(fmt.Errorf("read %s: %w", path, err))
		}
		goesOn = err == nil
		if line == 1 {
			switch strings.Map(dropSpaceAndQuotes, strings.TrimPrefix(text, "\ufeff")) {
			case header:
			case header + optionalColumns:
				columns += strings.Count(optionalColumns, ",")
			default:
				return config.Mistake(fmt.Errorf("%s: the first line must be %s", path, strings.Join(slices.Compact([]string{header, header + optionalColumns}), " or ")))
			}
			continue
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		fields, err := csv.NewReader(strings.NewReader(text)).Read()
		if err == nil && len(fields) != columns {
			err = fmt.Errorf("the line has %d columns, but the header has %d", len(fields), columns)
		}
		if parse := (*csv.ParseError)(nil); errors.As(err, &parse) {
			err = fmt.Errorf("the line is not valid CSV: %w", parse.Err)
		}
		row(line, fields, err)
	}
	return nil
}

// dropSpaceAndQuotes returns -1 for white space and quotes, so that strings.Map removes them from a
// header. Some programs put quotes around every field.
func dropSpaceAndQuotes(c rune) rune {
	if strings.ContainsRune(" \t\r\n\"", c) {
		return -1
	}
	return c
}
