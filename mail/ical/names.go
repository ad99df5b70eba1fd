package ical

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // containers often have no time zone data
	"unicode"
)

// windowsNames maps Windows names of time zones to IANA names, by the table in Unicode's CLDR and
// older releases of Windows. A name that has neither "Time" nor "UTC" stands for the name with "
// Standard Time" after it.
const windowsNames = `Afghanistan=Asia/Kabul;Alaskan=America/Anchorage;Aleutian=America/Adak;Altai=Asia/Barnaul;Arab=Asia/Riyadh;Arabian=Asia/Dubai;Arabic=Asia/Baghdad;
Argentina=America/Argentina/Buenos_Aires;Armenian=Asia/Yerevan;Astrakhan=Europe/Astrakhan;Atlantic=America/Halifax;AUS Central=Australia/Darwin;
Aus Central W.=Australia/Eucla;AUS Eastern=Australia/Sydney;Azerbaijan=Asia/Baku;Azores=Atlantic/Azores;Bahia=America/Bahia;Bangladesh=Asia/Dhaka;
Belarus=Europe/Minsk;Bougainville=Pacific/Bougainville;Canada Central=America/Regina;Cape Verde=Atlantic/Cape_Verde;Caucasus=Asia/Yerevan;
Cen. Australia=Australia/Adelaide;Central America=America/Guatemala;Central Asia=Asia/Bishkek;Central Brazilian=America/Cuiaba;
Central Europe=Europe/Budapest;Central European=Europe/Warsaw;Central Pacific=Pacific/Guadalcanal;Central=America/Chicago;
Central Standard Time (Mexico)=America/Mexico_City;Chatham Islands=Pacific/Chatham;China=Asia/Shanghai;Coordinated Universal Time=Etc/UTC;Cuba=America/Havana;Dateline=Etc/GMT+12;
E. Africa=Africa/Nairobi;E. Australia=Australia/Brisbane;E. Europe=Europe/Chisinau;E. South America=America/Sao_Paulo;Easter Island=Pacific/Easter;
Eastern=America/New_York;Eastern Standard Time (Mexico)=America/Cancun;Egypt=Africa/Cairo;Ekaterinburg=Asia/Yekaterinburg;Fiji=Pacific/Fiji;
FLE=Europe/Kyiv;Georgian=Asia/Tbilisi;GMT=Europe/London;Greenland=America/Nuuk;Greenwich=Atlantic/Reykjavik;Greenwich Mean Time=Etc/UTC;GTB=Europe/Bucharest;
Haiti=America/Port-au-Prince;Hawaiian=Pacific/Honolulu;India=Asia/Kolkata;Iran=Asia/Tehran;Israel=Asia/Jerusalem;Jerusalem=Asia/Jerusalem;
Jordan=Asia/Amman;Kaliningrad=Europe/Kaliningrad;Kamchatka=Asia/Kamchatka;Korea=Asia/Seoul;Libya=Africa/Tripoli;Line Islands=Pacific/Kiritimati;
Lord Howe=Australia/Lord_Howe;Magadan=Asia/Magadan;Magallanes=America/Punta_Arenas;Marquesas=Pacific/Marquesas;Mauritius=Indian/Mauritius;
Mexico=America/Mexico_City;Mexico Standard Time 2=America/Mazatlan;Mid-Atlantic=Etc/GMT+2;Middle East=Asia/Beirut;
Montevideo=America/Montevideo;Morocco=Africa/Casablanca;Mountain=America/Denver;Mountain Standard Time (Mexico)=America/Mazatlan;Myanmar=Asia/Yangon;
N. Central Asia=Asia/Novosibirsk;Namibia=Africa/Windhoek;Nepal=Asia/Kathmandu;New Zealand=Pacific/Auckland;Newfoundland=America/St_Johns;
Norfolk=Pacific/Norfolk;North Asia East=Asia/Irkutsk;North Asia=Asia/Krasnoyarsk;North Korea=Asia/Pyongyang;Omsk=Asia/Omsk;
Pacific SA=America/Santiago;Pacific=America/Los_Angeles;Pacific Standard Time (Mexico)=America/Tijuana;Pakistan=Asia/Karachi;
Paraguay=America/Asuncion;Qyzylorda=Asia/Qyzylorda;Romance=Europe/Paris;Russia Time Zone 10=Asia/Srednekolymsk;Russia Time Zone 11=Asia/Kamchatka;
Russia Time Zone 3=Europe/Samara;Russian=Europe/Moscow;SA Eastern=America/Cayenne;SA Pacific=America/Bogota;SA Western=America/La_Paz;
Saint Pierre=America/Miquelon;Sakhalin=Asia/Sakhalin;Samoa=Pacific/Apia;Sao Tome=Africa/Sao_Tome;Saratov=Europe/Saratov;SE Asia=Asia/Bangkok;
Singapore=Asia/Singapore;South Africa=Africa/Johannesburg;South Sudan=Africa/Juba;Sri Lanka=Asia/Colombo;Sudan=Africa/Khartoum;Syria=Asia/Damascus;
Taipei=Asia/Taipei;Tasmania=Australia/Hobart;Tocantins=America/Araguaina;Tokyo=Asia/Tokyo;Tomsk=Asia/Tomsk;Tonga=Pacific/Tongatapu;
Transbaikal=Asia/Chita;Turkey=Europe/Istanbul;Turks And Caicos=America/Grand_Turk;Ulaanbaatar=Asia/Ulaanbaatar;
US Eastern=America/Indiana/Indianapolis;US Mountain=America/Phoenix;UTC=Etc/UTC;UTC+12=Etc/GMT-12;UTC+13=Etc/GMT-13;UTC-02=Etc/GMT+2;UTC-08=Etc/GMT+8;
UTC-09=Etc/GMT+9;UTC-11=Etc/GMT+11;Venezuela=America/Caracas;Vladivostok=Asia/Vladivostok;Volgograd=Europe/Volgograd;W. Australia=Australia/Perth;
W. Central Africa=Africa/Lagos;W. Europe=Europe/Berlin;W. Mongolia=Asia/Hovd;West Asia=Asia/Tashkent;West Bank=Asia/Hebron;
West Pacific=Pacific/Port_Moresby;Yakutsk=Asia/Yakutsk;Yukon=America/Whitehorse`

var windowsZones = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	for row := range strings.SplitSeq(strings.ReplaceAll(windowsNames, "\n", ""), ";") {
		name, zone, _ := strings.Cut(row, "=")
		if !strings.Contains(name, "Time") && !strings.Contains(name, "UTC") {
			name += " Standard Time"
		}
		out[strings.ToLower(name)] = zone
	}
	return out
})

// toUTC converts a local time in the time zone id to UTC. It returns the zero time if the zone is
// unknown. An IANA or Windows name takes precedence over the calendar's own definition of the zone,
// which often has the rules of one year only. That definition takes precedence over an abbreviation
// such as EST.
func (zones zoneSet) toUTC(id string, local time.Time) time.Time {
	id = unescaped(id)
	place := locationOf(id)
	if z := zones[id]; z != nil && (place == nil || !strings.Contains(place.String(), "/")) {
		if offset, ok := z.offsetAt(local); ok {
			return local.Add(-offset)
		}
	}
	if place == nil {
		place = locationForInexactName(id)
	}
	if place == nil {
		return time.Time{}
	}
	return localToUTC(place, local)
}

// locationOf returns the time zone with a name, or with the name at the end of a path such as
// /mozilla.org/20050126_1/Europe/Berlin. It returns nil if the name is unknown.
func locationOf(id string) *time.Location {
	if len(id) > 255 {
		return nil
	}
	for rest, more := id, true; more; _, rest, more = strings.Cut(rest, "/") {
		if zone, ok := windowsZones()[strings.ToLower(rest)]; ok {
			rest = zone
		}
		if rest == "" || strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/") != "" {
			continue
		}
		switch first, _, _ := strings.Cut(rest, "/"); first {
		case "Local", "localtime", "posix", "posixrules", "right", "Factory": // not zones, or zones that count leap seconds
			continue
		}
		if place, err := time.LoadLocation(rest); err == nil {
			return place
		}
	}
	return nil
}

var (
	offsetName     = regexp.MustCompile(`^(?:UTC|GMT)?([+-])(\d{1,2})(?:[:.]?(\d\d))?$`)
	shownName      = regexp.MustCompile(`^\((UTC|GMT)([+-]\d\d[:.]\d\d)?\) *(.*)$`)
	citySeparators = regexp.MustCompile(` *[,/] *`)
)

// locationForInexactName returns the time zone for an inexact name: an offset, the label that
// Windows displays, such as "(UTC+01:00) Amsterdam, Berlin", the name of a summer time, or an IANA
// name in other letter case. It returns nil if there is none.
func locationForInexactName(id string) *time.Location {
	id = strings.TrimSpace(strings.ReplaceAll(id, `\`, ""))
	if len(id) > 255 {
		return nil
	}
	if strings.EqualFold(id, "Z") {
		return time.UTC
	}
	if m := offsetName.FindStringSubmatch(strings.ToUpper(id)); m != nil {
		hours, _ := strconv.Atoi(m[2])
		minutes, _ := strconv.Atoi(m[3])
		seconds := hours*3600 + minutes*60
		switch {
		case hours > 14 || minutes > 59:
			return nil
		case m[1] == "-":
			seconds = -seconds
		}
		return time.FixedZone("", seconds)
	}
	if m := shownName.FindStringSubmatch(id); m != nil {
		by := time.UTC
		if m[2] != "" {
			by = locationForInexactName(m[2])
		}
		if place := windowsLocation(m[3]); place != nil || by == nil {
			return place
		}
		for _, city := range citySeparators.Split(m[3], 20) {
			for _, area := range [...]string{"Europe", "America", "Asia", "Africa", "Australia", "Pacific", "Atlantic", "Indian"} {
				place := locationOf(area + "/" + strings.ReplaceAll(city, " ", "_"))
				if place != nil && sameOffset(place, by) {
					return place
				}
			}
		}
		return by
	}
	if place := windowsLocation(id); place != nil {
		return place
	}
	inWord := false
	return locationOf(strings.Map(func(r rune) rune {
		began := inWord
		inWord = unicode.IsLetter(r)
		if began {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, id))
}

// sameOffset reports whether two time zones have the same offset in January or in July.
func sameOffset(a, b *time.Location) bool {
	for _, month := range [...]time.Month{time.January, time.July} {
		at := time.Date(2020, month, 1, 0, 0, 0, 0, time.UTC)
		_, one := at.In(a).Zone()
		_, other := at.In(b).Zone()
		if one == other {
			return true
		}
	}
	return false
}

// windowsLocation returns the time zone for a Windows name. It also accepts the shortened and
// changed forms that programs use: "W. Europe", "Eastern Daylight Time", "Pacific Time (US &
// Canada)". It returns nil if there is none.
func windowsLocation(name string) *time.Location {
	name = strings.ToLower(strings.TrimRight(name, " 0123456789"))
	name, _, _ = strings.Cut(name, " (us & canada)")
	if zone := windowsZones()[name]; zone != "" {
		return locationOf(zone)
	}
	name = strings.TrimSuffix(name, " time")
	for _, season := range [...]string{" standard", " daylight", " summer"} {
		name = strings.TrimSuffix(name, season)
	}
	if zone := windowsZones()[name+" standard time"]; zone != "" {
		return locationOf(zone)
	}
	return nil
}

// localToUTC converts a local time in a time zone to UTC. If the clock skips the time when it goes
// forward, the offset before the change applies. If the time occurs twice, the first is returned
// (RFC 5545 section 3.3.5).
func localToUTC(place *time.Location, local time.Time) time.Time {
	by := func(from time.Time) time.Time {
		_, offset := from.In(place).Zone()
		return local.Add(-time.Duration(offset) * time.Second)
	}
	shows := func(at time.Time) bool {
		_, offset := at.In(place).Zone()
		return at.Add(time.Duration(offset) * time.Second).Equal(local)
	}
	early, late := by(local.AddDate(0, 0, -1)), by(local.AddDate(0, 0, 1))
	if !shows(early) && shows(late) {
		return late
	}
	return early
}
