package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// toYAML writes a JSON text as YAML 1.2 in block style, members in their order. Texts are quoted as
// JSON quotes them, which YAML takes.
func toYAML(text []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	y := &yamlWriter{dec: dec}
	if err := y.value(0, false); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return append(bytes.TrimLeft(y.out.Bytes(), "\n"), '\n'), nil
}

type yamlWriter struct {
	dec *json.Decoder
	out bytes.Buffer
}

// value writes the next value behind what is there: a scalar on the same line, a collection on
// lines of its own; but in a list an object begins beside the dash.
func (y *yamlWriter) value(depth int, inList bool) error {
	t, err := y.dec.Token()
	if err != nil {
		return err
	}
	open, ok := t.(json.Delim)
	if !ok {
		y.out.WriteString(" " + scalar(t))
		return nil
	}
	if !y.dec.More() {
		y.out.WriteString(map[json.Delim]string{'{': " {}", '[': " []"}[open])
		_, err := y.dec.Token()
		return err
	}
	for first := true; y.dec.More(); first = false {
		if first && inList && open == '{' {
			y.out.WriteByte(' ')
		} else {
			y.out.WriteString("\n" + strings.Repeat("  ", depth))
		}
		if open == '[' {
			y.out.WriteByte('-')
		} else if err := y.key(); err != nil {
			return err
		}
		if err := y.value(depth+1, open == '['); err != nil {
			return err
		}
	}
	_, err = y.dec.Token()
	return err
}

func (y *yamlWriter) key() error {
	t, err := y.dec.Token()
	if err != nil {
		return err
	}
	name, _ := t.(string)
	if !plainKey.MatchString(name) || slices.Contains(notKeys, name) {
		name = scalar(name)
	}
	y.out.WriteString(name + ":")
	return nil
}

var (
	plainKey = regexp.MustCompile(`^[A-Za-z/$_][A-Za-z0-9/{}$._-]*$`)
	notKeys  = []string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"} // other values in YAML 1.1 or 1.2
)

func scalar(t json.Token) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(t); err != nil {
		return "null"
	}
	return strings.TrimSpace(out.String())
}
