package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestChart(t *testing.T) {
	var out strings.Builder
	lines := `{"messages":100,"start_clean_ms":10,"check_s":1,"database_mib":1,"smtp_per_s":4000,"share":0.9}` + "\n" + `{"messages":10000,"start_clean_ms":100,"check_s":100,"database_mib":100}`
	if err := writeChart(&out, strings.NewReader(lines)); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(out.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{">start clean 100<", ">check 1e+05<", ">database 100<", ">10000 messages<", ">1000<"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "smtp") || strings.Contains(out.String(), "share") {
		t.Error("a figure that is neither time nor size is drawn")
	}
	for _, bad := range []string{"", lines[:20], `{"messages":1}`, `{"start_clean_ms":1}`} {
		if err := writeChart(io.Discard, strings.NewReader(bad)); err == nil {
			t.Errorf("%q is drawn", bad)
		}
	}
}
