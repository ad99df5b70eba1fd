// Command generate writes the licence notices of the binary to internal/licenses/notices.txt.gz.
// `make licenses` runs it from the top folder. It does not check whether a licence may be used.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/npmlock"
)

// noticesHead is the beginning of the file of notices.
const noticesHead = `Mailstead is built with the following software. Each line that begins with "===" names a part, and its
notice follows. Parts with the same notice stand together.
`

// publicSuffixNotice is the notice of the Public Suffix List, from which
// golang.org/x/net/publicsuffix is generated. The LICENSE of that module does not have it.
const publicSuffixNotice = `The Public Suffix List is subject to the terms of the Mozilla Public License, version 2.0
(https://mozilla.org/MPL/2.0/). The list in source form: https://publicsuffix.org/list/public_suffix_list.dat
`

// passwordListNotice is the notice of the list of common passwords in service/core/password.
const passwordListNotice = `Copyright (c) 2012-2016 Dan Wheeler and Dropbox, Inc.

Permission is hereby granted, free of charge, to any person obtaining
a copy of this software and associated documentation files (the
"Software"), to deal in the Software without restriction, including
without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to
permit persons to whom the Software is furnished to do so, subject to
the following conditions:

The above copyright notice and this permission notice shall be
included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND,
EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE
LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION
OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`

// noticeName matches names of notice files, such as LICENSE.md, LICENSE-MIT and NOTICE. It does not
// match names of source files, such as license.go.
var noticeName = regexp.MustCompile(`^(?i:licen[sc]e|copying|copyright|notice)([-.][A-Z0-9][\w-]*)?(\.(md|txt))?$`)

// A part is a piece of software that is built into the binary, such as a Go module.
type part struct {
	name string
	dirs []string // folders to search for notices; the first is the top folder
	text string   // the notice; "" if it is in the folders
}

func main() {
	log.SetFlags(0)
	parts, err := partsOf(".")
	if err != nil {
		log.Fatal(err)
	}
	text, err := notices(parts)
	if err != nil {
		log.Fatal(err)
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("internal/licenses/notices.txt.gz", zipped.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}

// partsOf returns what the binary is built from: Mailstead, Go, the Go modules and the npm
// packages. root is the folder of the module.
func partsOf(root string) ([]part, error) {
	goroot, err := run(root, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	modules, err := modulesOf(root)
	if err != nil {
		return nil, err
	}
	packages, err := packagesOf(root)
	if err != nil {
		return nil, err
	}
	parts := []part{
		{name: "Mailstead", dirs: []string{root}},
		{name: "The Go standard library and runtime", dirs: []string{strings.TrimSpace(string(goroot))}},
	}
	return append(append(parts, modules...), packages...), nil
}

// modulesOf returns the Go modules in the binary, sorted by name, with the Public Suffix List and
// the list of passwords. A package may have its own notice, so the folders of packages are searched
// too.
func modulesOf(root string) ([]part, error) {
	out, err := run(root, "go", "list", "-deps", "-json=ImportPath,Dir,Module", ".")
	if err != nil {
		return nil, err
	}
	parts := map[string]*part{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p struct {
			ImportPath, Dir string
			Module          *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := d.Decode(&p); err != nil {
			return nil, fmt.Errorf("decode the output of go list: %w", err)
		}
		if p.Module == nil || p.Module.Main {
			continue
		}
		name := p.Module.Path + " " + p.Module.Version
		if parts[name] == nil {
			parts[name] = &part{name: name, dirs: []string{p.Module.Dir}}
		}
		for dir := p.Dir; dir != p.Module.Dir; dir = filepath.Dir(dir) {
			if !slices.Contains(parts[name].dirs, dir) {
				parts[name].dirs = append(parts[name].dirs, dir)
			}
		}
		if p.ImportPath == "golang.org/x/net/publicsuffix" {
			parts["The Public Suffix List"] = &part{name: "The Public Suffix List", text: publicSuffixNotice}
		}
	}
	parts["Lists of common passwords of zxcvbn"] = &part{name: "Lists of common passwords of zxcvbn", text: passwordListNotice}
	return sortedParts(parts), nil
}

// packagesOf returns the npm packages that are bundled into the dashboard, sorted by name.
func packagesOf(root string) ([]part, error) {
	packages, err := npmlock.Read(filepath.Join(root, "web/package-lock.json"))
	if err != nil {
		return nil, err
	}
	parts := map[string]*part{}
	for _, p := range packages {
		name := p.Name + " " + p.Version + " (npm)"
		parts[name] = &part{name: name, dirs: []string{filepath.Join(root, "web", p.Dir)}}
	}
	return sortedParts(parts), nil
}

// sortedParts returns the parts sorted by name.
func sortedParts(parts map[string]*part) []part {
	var out []part
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, *parts[name])
	}
	return out
}

// notices returns the text of all notices. Each notice appears once, after the names of its parts.
func notices(parts []part) ([]byte, error) {
	var texts []string
	names := map[string][]string{}
	for _, p := range parts {
		text, err := p.notice()
		if err != nil {
			return nil, err
		}
		if names[text] == nil {
			texts = append(texts, text)
		}
		names[text] = append(names[text], p.name)
	}
	out := bytes.NewBufferString(noticesHead)
	for _, text := range texts {
		out.WriteByte('\n')
		for _, name := range names[text] {
			fmt.Fprintf(out, "=== %s\n", name)
		}
		fmt.Fprintf(out, "\n%s\n", text)
	}
	return out.Bytes(), nil
}

// notice returns the joined texts of a part's notice files. It returns an error if there are none.
func (p part) notice() (string, error) {
	if p.text != "" {
		return strings.TrimSpace(p.text), nil
	}
	var texts []string
	for _, dir := range p.dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if e.IsDir() || !noticeName.MatchString(e.Name()) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			text, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			if !utf8.Valid(text) {
				return "", fmt.Errorf("%s is not UTF-8", path)
			}
			clean := strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))
			if dir != p.dirs[0] {
				rel, err := filepath.Rel(p.dirs[0], path)
				if err != nil {
					return "", err
				}
				clean = rel + ":\n\n" + clean
			}
			texts = append(texts, clean)
		}
	}
	if len(texts) == 0 {
		return "", fmt.Errorf("%s has no licence file in %s", p.name, p.dirs[0])
	}
	return strings.Join(texts, "\n\n"), nil
}

// run runs a program in a directory with CGO_ENABLED=0, as `make build` does, and returns its
// output.
func run(dir, name string, args ...string) ([]byte, error) {
	c := exec.Command(name, args...)
	c.Dir, c.Env, c.Stderr = dir, append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", c, err)
	}
	return out, nil
}
