// Package npmlock reads which npm packages the dashboard is bundled with. It does not know what
// for.
package npmlock

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// A Package is one that is not only for development.
type Package struct {
	Name, Version string
	Dir           string // below that of the lock file, with slashes
}

// Read lists the packages that a package-lock.json has, by name and version. One that stands in
// several places is there as often.
func Read(file string) (out []Package, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version string
			Dev     bool
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for dir, p := range lock.Packages {
		const folder = "node_modules/" // one package may stand in another's
		if at := strings.LastIndex(dir, folder); at >= 0 && !p.Dev {
			out = append(out, Package{dir[at+len(folder):], p.Version, dir})
		}
	}
	slices.SortFunc(out, func(a, b Package) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Dir, b.Dir))
	})
	return out, nil
}
