// Command release writes the files of a release to a folder: an archive for each system, packages
// for Linux, the bill of materials, the changelog with this release on top, and the checksums of
// all files. `make release` runs it from the top folder. It signs and uploads nothing.
//
// Two runs on the same commit with the same version of Go write identical files. For that, all
// times are that of the commit or SOURCE_DATE_EPOCH, modes and owners are fixed, and no file
// contains paths, environment variables or names of the machine.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// nfpm is the program that makes .deb and .rpm packages. `go run` runs it, so that it is no
// dependency of this module.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

// allTargets are the systems and architectures for which a release has archives.
var allTargets = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "freebsd/amd64", "freebsd/arm64"}

// rpmArch maps names of architectures in Go to those in RPM.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// A release is a version to publish.
type release struct {
	version string
	at      time.Time // time of the commit, or SOURCE_DATE_EPOCH
	to      string    // the folder to write to
}

func main() {
	log.SetFlags(0)
	r := release{}
	flag.StringVar(&r.version, "version", "", "the version, such as 1.2.3 or 1.2.3-rc1 (the commit's tag, else one that is older than every release)")
	flag.StringVar(&r.to, "to", "dist", "the folder to fill, which is made, or empty")
	targets := flag.String("targets", strings.Join(allTargets, ","), "the systems to build for")
	program := flag.String("program", "", "package this program, built for the one of -targets, instead of building it")
	flag.Parse()
	if err := r.run(strings.Split(*targets, ","), *program); err != nil {
		log.Fatal("release: ", err)
	}
}

// run writes the files of the release. If program is not "", it is used instead of building.
func (r *release) run(targets []string, program string) error {
	if err := r.setVersionAndTime(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.to, 0o755); err != nil {
		return err
	}
	if old, err := os.ReadDir(r.to); err != nil || len(old) > 0 {
		return cmp.Or(err, fmt.Errorf("the folder %s is not empty", r.to))
	}
	if err := r.writeNotes(); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "mailstead-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	manual := filepath.Join(work, "man")
	if err := packManual("packaging/man", manual); err != nil {
		return err
	}
	var programs []string
	for _, target := range targets {
		goos, arch, _ := strings.Cut(target, "/")
		built := program
		if built == "" {
			built = filepath.Join(work, goos+"-"+arch)
			log.Printf("building mailstead %s for %s", r.version, target)
			if err := r.build(goos, arch, built); err != nil {
				return fmt.Errorf("build for %s: %w", target, err)
			}
		}
		programs = append(programs, built)
		if err := r.writeArchive(fmt.Sprintf("mailstead_%s_%s_%s.tar.gz", r.version, goos, arch), built); err != nil {
			return err
		}
		if goos != "linux" {
			continue
		}
		err := errors.Join(r.makePackage("deb", arch, built, manual, fmt.Sprintf("mailstead_%s_%s.deb", r.version, arch)),
			r.makePackage("rpm", arch, built, manual, fmt.Sprintf("mailstead-%s-1.%s.rpm", r.version, rpmArch[arch])))
		if err != nil {
			return err
		}
	}
	if err := r.writeBOM(programs); err != nil {
		return err
	}
	return r.writeChecksums()
}

// validVersion matches versions that sort in the same way in Debian, RPM and semantic versioning.
var validVersion = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`)

// setVersionAndTime sets the version and the time of the release from the git repository. Without a
// repository, SOURCE_DATE_EPOCH and the version must be given.
func (r *release) setVersionAndTime() error {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	head, err := git("log", "-1", "--format=%H %ct")
	commit, at, inRepository := strings.Cut(head, " ")
	if err == nil {
		epoch = cmp.Or(epoch, at)
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("there is no git repository, and SOURCE_DATE_EPOCH is %q: set it to the Unix time of the sources", epoch)
	}
	r.at = time.Unix(seconds, 0).UTC()
	if r.version == "" && inRepository {
		r.version, err = git("describe", "--exact-match", "--match", "v[0-9]*")
		if err != nil {
			r.version = fmt.Sprintf("0.0.0-%s.g%s", r.at.Format("20060102150405"), commit[:12])
		}
		if changed, err := git("status", "--porcelain"); err != nil || changed != "" {
			r.version += ".dirty"
		}
	}
	r.version = strings.TrimPrefix(r.version, "v")
	if !validVersion.MatchString(r.version) {
		return fmt.Errorf("%q is not a version: write 1.2.3 or 1.2.3-rc1", r.version)
	}
	return nil
}

// git runs git and returns its output without white space around it.
func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	return strings.TrimSpace(string(out)), err
}

// run runs a program with additional environment variables.
func run(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	return cmd.Run()
}

// build builds the program as `make build` does, but ignores settings of Go in the environment.
func (r *release) build(goos, arch, path string) error {
	env := []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off"}
	flags, err := os.ReadFile("packaging/buildflags")
	if err != nil {
		return err
	}
	args := append([]string{"build"}, strings.Fields(string(flags))...)
	return run(env, "go", append(args, "-buildvcs=false", "-ldflags", "-s -w -X main.version="+r.version, "-o", path, ".")...)
}

// writeArchive writes a .tar.gz with the program, README, LICENSE and systemd units.
func (r *release) writeArchive(name, program string) (err error) {
	out, err := os.Create(filepath.Join(r.to, name))
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(out)
	files := tar.NewWriter(zip)
	defer func() { err = errors.Join(err, files.Close(), zip.Close(), out.Close()) }()
	for _, f := range []struct {
		name, from string
		mode       int64
	}{
		{"mailstead", program, 0o755}, {"README.md", "README.md", 0o644}, {"LICENSE", "LICENSE", 0o644},
		{"mailstead.service", "packaging/mailstead.service", 0o644}, {"mailstead.socket", "packaging/mailstead.socket", 0o644},
	} {
		data, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		h := &tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(data)), ModTime: r.at}
		if err := files.WriteHeader(h); err != nil {
			return err
		}
		if _, err := files.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// packManual writes the manual pages in the folder from, compressed as packages have them, to the
// new folder to.
func packManual(from, to string) error {
	pages, err := filepath.Glob(filepath.Join(from, "*.1"))
	if err != nil || len(pages) == 0 {
		return cmp.Or(err, fmt.Errorf("there are no manual pages in %s", from))
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression) // without a name or a time, as gzip -n
		if err != nil {
			return err
		}
		_, err = zip.Write(text)
		if err := errors.Join(err, zip.Close()); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(page)+".gz"), packed.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// makePackage makes a package of a kind ("deb" or "rpm") with nfpm, as packaging/nfpm.yaml says.
// manual is the folder with the packed manual pages.
func (r *release) makePackage(kind, arch, program, manual, name string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	env := []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.at.Unix(), 10), "VERSION=" + r.version, "ARCH=" + arch, "PROGRAM=" + program, "MAN=" + manual, "GOFLAGS=", "GOOS=", "GOARCH="}
	if err := run(env, "go", "run", nfpm, "package", "--config", "packaging/nfpm.yaml", "--packager", kind, "--target", filepath.Join(r.to, name)); err != nil {
		return fmt.Errorf("make package %s: %w", name, err)
	}
	return nil
}

// writeBOM writes the bill of materials.
func (r *release) writeBOM(programs []string) error {
	b, err := r.bom(programs, "web/package-lock.json")
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.to, "mailstead_"+r.version+".cdx.json"), append(text, '\n'), 0o644)
}

// writeChecksums writes the SHA-256 checksums of all files of the release, for `sha256sum -c`.
func (r *release) writeChecksums() error {
	list, err := os.ReadDir(r.to) // sorted by name
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range list {
		f, err := os.Open(filepath.Join(r.to, e.Name()))
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum.Sum(nil), e.Name())
	}
	return os.WriteFile(filepath.Join(r.to, "checksums.txt"), []byte(sums.String()), 0o644)
}
