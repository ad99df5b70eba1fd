// Package npmlock reads package-lock.json, which lists the npm packages of the dashboard.
package npmlock

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A Package is an npm package that the dashboard is built with: it is not only needed for
// development, and not optional, as programs for one platform are.
type Package struct {
	Name, Version string
	Dir           string // folder, relative to that of the lock file, with slashes
}

// Read returns the packages in a package-lock.json, sorted by name and version. A package that is
// installed in several folders appears several times.
func Read(file string) (out []Package, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version  string
			Dev      bool
			Optional bool
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("parse %s: %w", file, err)
	}
	for dir, p := range lock.Packages {
		const folder = "node_modules/" // it may occur twice if a package is in the folder of another
		if at := strings.LastIndex(dir, folder); at >= 0 && !p.Dev && !p.Optional {
			out = append(out, Package{dir[at+len(folder):], p.Version, dir})
		}
	}
	slices.SortFunc(out, func(a, b Package) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Dir, b.Dir))
	})
	return out, nil
}
