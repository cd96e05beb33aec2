"""Tasks of listening: trained networks that packages ship, and sounds made for them of which everything is known.

Speech is spoken by the synthesiser eSpeak NG, which a package ships as a library; music is made of plucked strings
(Karplus and Strong, Computer Music Journal 7, 1983) and of sums of overtones; sung tones are overtones under formants.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.signal import lfilter, resample_poly

from contest.shipped import network, unpacked
from contest.task import Arrays, Task, write_task
from contest.texts import documentation

SPEECH_RATE, SPEECH_WINDOW, SPEECH_WINDOWS, SPEECH_BEFORE = 16000, 512, 32, 64
"""Samples a second, of a window, windows of a sample (a second), and what each window sees of the one before."""
VOICES = ("en", "en-us", "de", "fr", "es", "it", "pl", "ru")
SPEAKERS = ("", "+m1", "+m3", "+m5", "+m7", "+f1", "+f2", "+f3", "+f4")
AUDIBLE = 0.05
"""Of a recording's loudness (root of mean square where there is sound): from there on a window holds speech."""
MUSIC_RATE, MUSIC_LENGTH, MUSIC_HOP, MUSIC_FRAMES = 22050, 43844, 256, 172
LOWEST_KEY, KEYS = 21, 88
"""MIDI's number of a piano's lowest key, and how many it has."""


def make_speech(task: Task, given: int, held_out: int) -> None:
    """Speech with pauses in noise; label ``speech``, 1 for each window of 32 ms that holds some."""
    shape = (SPEECH_WINDOWS, SPEECH_BEFORE + SPEECH_WINDOW)
    states = {"h": (1, 1, 128), "c": (1, 1, 128)}
    model = network("silero-vad==6.2.3", "silero_vad_16k_sequence.onnx", {"input": shape, **states})
    phrases = [" ".join(text.split())[:60] for text in documentation() if len(text) > 60]
    with tempfile.TemporaryDirectory() as folder:
        speaker = _Speaker(unpacked("espeakng-loader==0.2.4", Path(folder)) / "espeakng_loader")

        def draw(count: int, seed: int) -> Arrays:
            rng = np.random.default_rng(seed)
            sounds, speech = zip(*(_spoken(rng, speaker, phrases) for _ in range(count)), strict=True)
            silent = {state: np.zeros((count, *shape), np.float32) for state, shape in states.items()}
            return {"input": np.stack(sounds), **silent, "speech": np.stack(speech)}

        write_task(task, model, draw(given, 21), draw(held_out, 22))


def make_music(task: Task, given: int, held_out: int) -> None:
    """Two seconds of notes, one to four at once; label ``notes`` [172, 88], 1 where a key sounds."""
    name = "serving_default_input_2:0"
    model = network("basic-pitch==0.4.0", "nmp.onnx", {name: (1, MUSIC_LENGTH, 1)})

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        sounds, notes = zip(*(_played(rng) for _ in range(count)), strict=True)
        return {name: np.stack(sounds), "notes": np.stack(notes)}

    write_task(task, model, draw(given, 23), draw(held_out, 24))


class _Speaker:
    """eSpeak NG by its C interface (``speak_lib.h``); ``folder`` holds the library and its data."""

    def __init__(self, folder: Path) -> None:
        self._heard: list[np.ndarray] = []
        self._library = ctypes.CDLL(str(next(folder.glob("*espeak-ng.so"))))
        # Retrieved at once rather than played.
        self._rate = int(self._library.espeak_Initialize(2, 0, str(folder).encode(), 0))
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
        self._keep = kind(self._hear)  # the library has only its address
        self._library.espeak_SetSynthCallback(self._keep)

    def say(self, text: str, voice: str, words_a_minute: int, pitch: int) -> np.ndarray:
        """``text`` as float32 sound of ``SPEECH_RATE``; ``pitch`` from 0 to 100."""
        self._heard.clear()
        self._library.espeak_SetVoiceByName(voice.encode())
        self._library.espeak_SetParameter(1, words_a_minute, 0)
        self._library.espeak_SetParameter(3, pitch, 0)
        spoken = text.encode()
        self._library.espeak_Synth(spoken, len(spoken) + 1, 0, 1, 0, 1, None, None)
        return resample_poly(np.concatenate(self._heard), SPEECH_RATE, self._rate).astype(np.float32)

    def _hear(self, samples: "ctypes._Pointer[ctypes.c_short]", count: int, _events: object) -> int:
        if samples and count > 0:
            self._heard.append(np.ctypeslib.as_array(samples, (count,)).astype(np.float32) / 32768.0)
        return 0


def _spoken(rng: np.random.Generator, speaker: _Speaker, phrases: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Windows of about a second, and which of them hold speech."""
    voice = f"{rng.choice(VOICES)}{rng.choice(SPEAKERS)}"
    said = speaker.say(str(rng.choice(phrases)), voice, int(rng.integers(120, 220)), int(rng.integers(20, 80)))
    length = SPEECH_WINDOWS * SPEECH_WINDOW
    clean = np.concatenate([np.zeros(length, np.float32), said, np.zeros(length, np.float32)])
    begin = int(rng.integers(SPEECH_BEFORE, len(clean) - length))
    loud = float(np.sqrt((said**2).mean()))
    noise = _noise(rng, len(clean)) * loud * 10.0 ** (-rng.uniform(0.0, 30.0) / 20.0)
    heard = (clean + noise) * rng.uniform(0.2, 1.5)
    starts = begin + SPEECH_WINDOW * np.arange(SPEECH_WINDOWS)
    windows = np.stack([heard[start - SPEECH_BEFORE : start + SPEECH_WINDOW] for start in starts])
    levels = np.array([np.sqrt((clean[start : start + SPEECH_WINDOW] ** 2).mean()) for start in starts])
    return windows.astype(np.float32), (levels > AUDIBLE * loud).astype(np.int64)


def _noise(rng: np.random.Generator, length: int) -> np.ndarray:
    """Of unit loudness, from white to brown."""
    shape = np.arange(1, length // 2 + 2) ** -rng.uniform(0.0, 1.0)
    noise = np.fft.irfft(np.fft.rfft(rng.standard_normal(length)) * shape, length)
    return np.asarray(noise / noise.std())


def _played(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sound [1, 43844, 1] of chords one after the other, and which keys sound in each frame."""
    sound, notes = np.zeros(MUSIC_LENGTH), np.zeros((MUSIC_FRAMES, KEYS), np.int64)
    begin = int(rng.integers(0, MUSIC_RATE // 4))
    while begin < MUSIC_LENGTH - MUSIC_RATE // 5:
        for key in rng.choice(np.arange(36, 85), int(rng.integers(1, 5)), replace=False):
            end = min(MUSIC_LENGTH, begin + int(rng.uniform(0.2, 0.9) * MUSIC_RATE))
            sound[begin:end] += _tone(rng, int(key), end - begin) * rng.uniform(0.3, 1.0)
            notes[begin // MUSIC_HOP : end // MUSIC_HOP, key - LOWEST_KEY] = 1
        begin += int(rng.uniform(0.15, 0.6) * MUSIC_RATE)
    sound = sound / np.abs(sound).max() * rng.uniform(0.3, 1.0) + _noise(rng, MUSIC_LENGTH) * 0.003
    return sound[np.newaxis, :, np.newaxis].astype(np.float32), notes


def _tone(rng: np.random.Generator, key: int, length: int) -> np.ndarray:
    """A note that begins at once and fades at its end."""
    hertz = 440.0 * 2.0 ** ((key - 69) / 12)
    if key < 62 and rng.random() < 0.5:
        tone = _plucked(rng, hertz, length)
    else:
        order = np.arange(1, 1 + min(12, int(0.45 * MUSIC_RATE / hertz)))[:, np.newaxis]
        angles = 2.0 * np.pi * order * hertz * np.arange(length) / MUSIC_RATE + rng.uniform(0, 2 * np.pi, order.shape)
        tone = (np.sin(angles) * order ** -rng.uniform(0.8, 2.0)).sum(0)
        tone = tone * np.exp(-np.arange(length) / MUSIC_RATE * rng.uniform(0.3, 3.0))
    edge = np.minimum(1.0, np.minimum(np.arange(length) / 100.0, np.arange(length)[::-1] / 600.0))
    return np.asarray(tone / np.abs(tone).max() * edge)


def _plucked(rng: np.random.Generator, hertz: float, length: int) -> np.ndarray:
    period = round(MUSIC_RATE / hertz - 0.5)
    pluck = np.zeros(length)
    pluck[:period] = rng.uniform(-1.0, 1.0, min(period, length))
    again = np.zeros(period + 2)
    again[0], again[-2:] = 1.0, -0.498
    return np.asarray(lfilter([1.0], again, pluck))
