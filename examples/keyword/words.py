"""Words spoken by espeak-ng, and what a keyword spotter hears of them: 49 frames of 10 numbers for a second.

    python words.py FILE.npz        (apt install espeak-ng)

The voices are synthesized. They differ in timbre, accent, pitch and speed; each word begins somewhere within the second, and
there is noise."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import wave

import numpy

WORDS = ["yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go"]
OTHERS = ["bed", "bird", "cat", "dog", "happy", "house", "tree", "wow", "zero", "seven", "forward", "visual", "water", "window"]
NEW = "computer"
ACCENTS = ["en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbcwmd", "en-029", "en-us-nyc"]
TIMBRES = ["Alex", "Alicia", "Andrea", "Andy", "Annie", "Denis", "Diogo", "Gene", "Henrique", "Hugo", "Jacky", "Lee", "Marco",
           "Mario", "Michael", "Mike", "Nguyen", "adam", "anika", "announcer", "antonio", "aunty", "belinda", "benjamin",
           "boris", "caleb", "david", "ed", "edward", "f1", "f2", "f3", "f4", "f5", "grandma", "grandpa", "gustave", "iven",
           "john", "kaukovalta", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "marcelo", "max", "michel", "miguel",
           "norbert", "pablo", "paul", "pedro", "quincy", "rob", "robert", "sandro", "shelby", "steph", "travis", "victor",
           "zac"]  # fmt: skip
TESTED = TIMBRES[::6]  # never heard while the model is trained, nor is:
USER = "linda"  # who teaches the board
RATE = 22050
FRAME, HOP, FRAMES, FILTERS, COEFFICIENTS = 882, 441, 49, 40, 10  # 40 ms, every 20 ms


def say(word: str, accent: str, timbre: str, speed: int, pitch: int) -> numpy.ndarray:
    """A waveform, without the silence around it."""
    command = ["espeak-ng", "-v", f"{accent}+{timbre}", "-s", str(speed), "-p", str(pitch), "--stdout", word]
    with wave.open(io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout)) as sound:
        samples = numpy.frombuffer(sound.readframes(sound.getnframes() or -1), numpy.int16) / 32768
    heard = numpy.flatnonzero(numpy.abs(samples) > 0.02 * numpy.abs(samples).max())
    return samples[heard[0] : heard[-1] + 1]


def second(samples: numpy.ndarray, chance: random.Random) -> numpy.ndarray:
    """Within one second, somewhere, as loud as anything, with noise."""
    length = RATE + FRAME
    samples = samples[:length]
    at = chance.randrange(length - len(samples) + 1)
    noise = numpy.random.default_rng(chance.randrange(1 << 30)).normal(size=length)
    made = noise * 10 ** chance.uniform(-3.5, -2)
    made[at : at + len(samples)] += samples * chance.uniform(0.3, 1) / numpy.abs(samples).max()
    return made


def _filters() -> numpy.ndarray:
    """Triangles, evenly spaced in mels from 20 to 8000 Hz, over a spectrum of 513 lines."""
    mels = numpy.linspace(*(2595 * numpy.log10(1 + hertz / 700) for hertz in (20, 8000)), FILTERS + 2)
    corners = 700 * (10 ** (mels / 2595) - 1)
    lines = numpy.arange(513) * RATE / 1024
    up = (lines - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    down = (corners[2:, None] - lines) / (corners[2:] - corners[1:-1])[:, None]
    return numpy.maximum(0, numpy.minimum(up, down))


_MELS = _filters()
_COSINES = numpy.cos(numpy.pi / FILTERS * numpy.arange(COEFFICIENTS)[:, None] * (numpy.arange(FILTERS) + 0.5))


def features(samples: numpy.ndarray) -> numpy.ndarray:
    """Mel-frequency cepstral coefficients, as bytes: eighths."""
    frames = numpy.stack([samples[HOP * i : HOP * i + FRAME] for i in range(FRAMES)]) * numpy.hanning(FRAME)
    loud = numpy.log(numpy.abs(numpy.fft.rfft(frames, 1024)) ** 2 @ _MELS.T + 1e-4)
    coefficients = loud @ _COSINES.T / FILTERS
    coefficients[:, 0] += 4  # silence is far below 0
    return numpy.clip(numpy.round(coefficients * 8), -127, 127).astype(numpy.int8)


def utterances(word: str, timbres: list[str], count: int, chance: random.Random) -> list[numpy.ndarray]:
    """So many, by voices one after the other."""
    made = []
    for i in range(count):
        speed, pitch = chance.randrange(130, 200), chance.randrange(25, 75)
        spoken = say(word, chance.choice(ACCENTS), timbres[i % len(timbres)], speed, pitch)
        made.append(features(second(spoken, chance)))
    return made


def main() -> None:
    chance = random.Random(1)
    heard = [timbre for timbre in TIMBRES if timbre not in TESTED]
    arrays = {}
    for name, timbres, of_word, of_other in (("train", heard, 60, 6), ("test", TESTED, 11, 1)):
        x, y = [], []
        for number, words in enumerate([*([word] for word in WORDS), OTHERS]):
            for word in words:
                x += utterances(word, timbres, of_word if len(words) == 1 else of_other, chance)
            y += [number] * (len(x) - len(y))
        arrays[f"{name}_x"], arrays[f"{name}_y"] = numpy.stack(x), numpy.array(y, numpy.uint8)
    for name, count in (("new", 10), ("new_test", 30)):
        arrays[f"{name}_x"] = numpy.stack(utterances(NEW, [USER], count, chance))
    numpy.savez_compressed(sys.argv[1], **arrays)


if __name__ == "__main__":
    main()
