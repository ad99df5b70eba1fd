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

// lineOf returns the name of a line of a list for errors.
func lineOf(list string, line int) string { return fmt.Sprintf("%s line %d", list, line) }

// readCSV reads a CSV file. Its first line must be header, or header + more. It calls row for each
// further line with its number and its fields, or with an error as bad. Each line is parsed by
// itself, so that an unclosed quote affects no other line. Errors are for the author of the file.
func readCSV(path, header, more string, row func(line int, fields []string, bad error)) error {
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
			return config.Mistake(fmt.Errorf("%s: %w", path, err))
		}
		goesOn = err == nil
		if line == 1 {
			switch strings.Map(withoutSpace, strings.TrimPrefix(text, "\ufeff")) {
			case header:
			case header + more:
				columns += strings.Count(more, ",")
			default:
				return config.Mistake(fmt.Errorf("%s: the first line must be %s", path, strings.Join(slices.Compact([]string{header, header + more}), " or ")))
			}
			continue
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		fields, err := csv.NewReader(strings.NewReader(text)).Read()
		if err == nil && len(fields) != columns {
			err = fmt.Errorf("it has %d columns, and the header %d", len(fields), columns)
		}
		if parse := (*csv.ParseError)(nil); errors.As(err, &parse) {
			err = fmt.Errorf("it is not a valid line of a CSV file: %w", parse.Err)
		}
		row(line, fields, err)
	}
	return nil
}

// withoutSpace is a mapping for strings.Map that drops blanks, line ends, and the quotes that some
// programs put around every field.
func withoutSpace(c rune) rune {
	if strings.ContainsRune(" \t\r\n\"", c) {
		return -1
	}
	return c
}
