// Package docs has the guides as Markdown, and the files that they show or link to. README.md is
// their index: it has their groups, their order, and a line about each. The package does not know
// how they are served.
package docs

import "embed"

// Files has the guides, the examples and the pictures by their paths below this folder.
//
//go:embed *.md *.yml *.json *.svg screenshots/domain.png screenshots/inbox.png screenshots/phone.png
//go:embed examples/*.md examples/curl/*.sh examples/go/*/*.go examples/javascript/*.mjs examples/python/*.py
var Files embed.FS
