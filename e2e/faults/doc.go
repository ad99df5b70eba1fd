// Package faults has the end-to-end tests of what goes wrong, and of what undoes it: kills, power
// cuts, damaged and full disks, dead upstreams, backups, upgrades and packages.
package faults
