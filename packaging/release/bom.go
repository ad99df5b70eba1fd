package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/npmlock"
)

// A bom is a bill of materials in the format CycloneDX 1.5.
type bom struct {
	Schema       string         `json:"$schema"`
	Format       string         `json:"bomFormat"`
	SpecVersion  string         `json:"specVersion"`
	SerialNumber string         `json:"serialNumber"`
	Version      int            `json:"version"`
	Metadata     bomMetadata    `json:"metadata"`
	Components   []component    `json:"components"`
	Dependencies []dependencies `json:"dependencies"`
}

// bomMetadata describes the bill of materials itself.
type bomMetadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

// A component is a library, or the program.
type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Licenses []license `json:"licenses,omitempty"`
	PURL     string    `json:"purl"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

// dependencies lists what one component depends on.
type dependencies struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// bom returns the bill of materials of the programs. It has the version of Go and the modules, as
// recorded in the programs, and the npm packages of the dashboard, from the lock file.
func (r *release) bom(programs []string, lockFile string) (*bom, error) {
	parts := map[string]component{}
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read the modules of %s: %w", path, err)
		}
		version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ") // names of experiments may follow after a space
		parts["std"] = libraryComponent("golang", "std", version)
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			parts[m.Path] = libraryComponent("golang", m.Path, m.Version)
		}
	}
	packages, err := npmlock.Read(lockFile)
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		c := libraryComponent("npm", p.Name, p.Version)
		parts["npm "+c.PURL] = c
	}
	self := libraryComponent("golang", "github.com/mailstead/mailstead", "v"+r.version)
	self.Type, self.Name, self.Version = "application", "mailstead", r.version
	self.Licenses = make([]license, 1)
	self.Licenses[0].License.ID = "MIT"
	b := &bom{
		Schema: "http://cyclonedx.org/schema/bom-1.5.schema.json", Format: "CycloneDX", SpecVersion: "1.5", Version: 1, SerialNumber: r.serialNumber(),
		Metadata: bomMetadata{Timestamp: r.at.Format(time.RFC3339), Component: self},
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		b.Components = append(b.Components, parts[name])
	}
	all := dependencies{Ref: self.Ref}
	for _, c := range b.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}
	b.Dependencies = []dependencies{all}
	return b, nil
}

// libraryComponent returns the component of a library. kind is the type of its package URL, such as
// "golang".
func libraryComponent(kind, name, version string) component {
	path := strings.ReplaceAll(strings.ToLower(name), "@", "%40")
	purl := fmt.Sprintf("pkg:%s/%s@%s", kind, path, url.PathEscape(version))
	return component{Type: "library", Ref: purl, Name: name, Version: version, PURL: purl}
}

// serialNumber returns the serial number of the bill of materials: a UUID (version 8) that is
// derived from the version and time of the release.
func (r *release) serialNumber() string {
	u := sha256.Sum256(fmt.Appendf(nil, "mailstead %s %d", r.version, r.at.Unix()))
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
